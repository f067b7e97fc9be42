"""The grid on a real Ray instance of this machine: with two workers, one of which is killed while its cell runs."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from groupwise.config import ConfigError
from groupwise.experiment import load_experiment
from groupwise_look.compare.grids import Cell, lay_out, variants
from groupwise_look.compare.ray_grid import RayGrid

GRID_SCRIPT = """
import json, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
with open(folder.parent / f"workers-{folder.name}", "a") as file:
    file.write(f"{os.getppid()}\\n")
if folder.name == "seed-1":
    sys.exit("no luck")
if folder.name == "seed-0":
    time.sleep(2.0)
(folder / "summary.json").write_text("{}")
"""


def grid_script(cell: Cell) -> Sequence[str]:
    return [sys.executable, "-S", "-c", GRID_SCRIPT, str(cell.folder)]


def kill_the_first(note: Path, killed: list[int]) -> None:
    until = time.monotonic() + 600
    while time.monotonic() < until and not (note.is_file() and note.read_text().endswith("\n")):
        time.sleep(0.02)
    killed.append(int(note.read_text().split()[0]))
    os.kill(killed[0], signal.SIGKILL)


@pytest.mark.nightly
def test_a_cell_whose_worker_is_killed_is_run_again_and_the_grid_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    cells = lay_out(tmp_path / "grid", "tiny", {variant: {} for variant in variants(["method=grpo,dapo"])}, [0, 1, 2])
    killed: list[int] = []
    note = cells[0].folder.parent / "workers-seed-0"
    killer = threading.Thread(target=kill_the_first, args=(note, killed))
    killer.start()
    # A path of a socket must be short, so Ray keeps its own folder.
    with closing(RayGrid(num_workers=2)) as grid:
        outcomes = {
            (outcome.cell.variant.name, outcome.cell.seed): outcome for outcome in grid.run(cells, command=grid_script)
        }
        killer.join()
        again = list(grid.run(cells[:1], command=grid_script))
    assert len(outcomes) == 6
    attempts = [int(line) for line in note.read_text().split()]
    assert attempts[0] == killed[0]
    assert len(attempts) == 2
    assert attempts[1] != killed[0]
    assert outcomes["method=grpo", 0].error == ""
    assert cells[0].finished
    # A cell that fails by itself is reported, not tried again, and ends nothing else.
    assert "no luck" in outcomes["method=grpo", 1].error
    assert len((cells[0].folder.parent / "workers-seed-1").read_text().split()) == 1
    assert sum(not outcome.error for outcome in outcomes.values()) == 4
    assert [outcome.skipped for outcome in again] == [True]


def parent_of(text: str) -> int | None:
    """The process that started the one with this text among its arguments."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if text in (place / "cmdline").read_text() and "groupwise" in (place / "cmdline").read_text():
                return int(
                    next(
                        line for line in (place / "status").read_text().splitlines() if line.startswith("PPid:")
                    ).split()[1]
                )
        except OSError:
            continue
    return None


@pytest.mark.slow
def test_a_run_whose_worker_is_killed_goes_on_from_its_checkpoint(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    table = load_experiment(tiny, ["stages.grpo.num_steps=200", "controls=null"]).table()
    cells = lay_out(tmp_path / "grid", "tiny", dict.fromkeys(variants([]), table), [0, 1])

    def kill() -> None:
        until = time.monotonic() + 240
        while time.monotonic() < until and not (cells[0].folder / "checkpoints" / "step-6").exists():
            time.sleep(0.05)
        worker = parent_of(str(cells[0].folder))
        assert worker is not None
        os.kill(worker, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with closing(RayGrid(num_workers=2)) as grid:
        outcomes = list(grid.run(cells))
    killer.join()
    assert [outcome.error for outcome in outcomes] == ["", ""]
    rows = [json.loads(line) for line in (cells[0].folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(204))
    starts = [len(json.loads((cell.folder / "environment.json").read_text())["starts"]) for cell in cells]
    assert starts == [2, 1]


@pytest.mark.nightly
def test_a_grid_that_the_machines_do_not_see_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    cell, *_ = lay_out(tmp_path / "grid", "tiny", {variant: {} for variant in variants([])}, [0])
    elsewhere = Cell(cell.variant, 0, tmp_path / "elsewhere" / "as-it-is" / "seed-0")
    with closing(RayGrid(num_workers=1)) as grid:
        (outcome,) = grid.run([elsewhere], command=grid_script)
    assert "give --out a folder that all machines of the cluster see" in outcome.error


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="pip install ray, or --on local"):
        RayGrid()


def test_a_wrong_address_and_a_cluster_without_gpus_are_refused(monkeypatch: pytest.MonkeyPatch):
    def init(address: str, **settings: Any) -> None:
        if address != "local":
            raise ConnectionError("nobody there")

    ray = SimpleNamespace(
        is_initialized=lambda: False,
        init=init,
        nodes=lambda: [{"Alive": True, "Resources": {"CPU": 2.0}}],
        shutdown=lambda: None,
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ConfigError, match=r"no Ray cluster at 'head:1' \(nobody there\); give --address"):
        RayGrid("head:1")
    with pytest.raises(ConfigError, match=r"no machine of the cluster has 0\.5 GPU"):
        RayGrid(gpus=0.5)
    RayGrid()
