"""A grid runs every cell once, continues where it stopped, and outlives a cell that fails."""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.experiment.tiny import TINY

from groupwise.config import ConfigError
from groupwise.experiment.loading import load_experiment
from groupwise.experiment.runner import check_start, run
from groupwise_look.compare.grids import Cell, Variant, grid_lock, lay_out, run_grid, variants


def script(text: str):
    """A command that runs `text` with the cell's folder and seed, in place of a training run."""

    def command(cell: Cell) -> Sequence[str]:
        head = (
            "import pathlib, sys, time; folder = pathlib.Path(sys.argv[1]); seed = int(sys.argv[2]);"
            " folder.mkdir(parents=True)\n"
        )
        return [sys.executable, "-S", "-c", head + text, str(cell.folder), str(cell.seed)]

    return command


FINISH = "(folder / 'summary.json').write_text('{}')"


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    return lay_out(
        tmp_path / "grid",
        "language",
        {variant: {"method": variant.name} for variant in variants(["method=grpo,dapo"])},
        [0, 1],
    )


def test_every_cell_runs_once_and_a_second_call_runs_nothing(cells: list[Cell], tmp_path: Path):
    outcomes = list(run_grid(cells, workers=2, command=script(FINISH)))
    assert sorted((outcome.cell.variant.name, outcome.cell.seed) for outcome in outcomes) == [
        ("method=dapo", 0),
        ("method=dapo", 1),
        ("method=grpo", 0),
        ("method=grpo", 1),
    ]
    assert not any(outcome.error or outcome.skipped for outcome in outcomes)
    assert all(outcome.skipped for outcome in run_grid(cells, workers=2, command=script("raise SystemExit(1)")))
    assert json.loads((tmp_path / "grid" / "method=grpo" / "experiment.json").read_text()) == {"method": "method=grpo"}


def test_a_cell_that_fails_is_reported_and_runs_again_next_time(cells: list[Cell]):
    outcomes = {
        (o.cell.variant.name, o.cell.seed): o
        for o in run_grid(cells, workers=2, command=script(f"if seed: {FINISH}\nelse: sys.exit('no luck')"))
    }
    assert "exit status 1" in outcomes["method=grpo", 0].error
    assert "no luck" in outcomes["method=grpo", 0].error
    assert not outcomes["method=grpo", 1].error
    again = list(run_grid(cells, workers=1, command=script(FINISH)))
    assert sorted(outcome.skipped for outcome in again) == [False, False, True, True]
    assert not any(outcome.error for outcome in again)


def test_a_cell_with_a_checkpoint_is_resumed_and_one_without_is_trained(cells: list[Cell]):
    assert cells[0].command()[4:] == [
        "train",
        str(cells[0].folder.parent / "experiment.json"),
        "--seed",
        "0",
        "--out",
        str(cells[0].folder),
        "--run-code",
    ]
    (cells[0].folder / "checkpoints" / "step-5").mkdir(parents=True)
    assert cells[0].command()[4:] == ["resume", str(cells[0].folder)]


def test_leaving_early_stops_what_runs(cells: list[Cell]):
    """Where it waited for them, this test would take an hour."""
    outcomes = run_grid(
        cells, workers=2, command=script(f"if seed == 0 and 'grpo' in str(folder): {FINISH}\nelse: time.sleep(3600)")
    )
    next(outcomes)
    outcomes.close()
    assert sum(cell.finished for cell in cells) == 1


def test_another_grid_in_the_same_folder_is_refused_and_more_seeds_are_not(cells: list[Cell], tmp_path: Path):
    variant = cells[0].variant
    assert len(lay_out(tmp_path / "grid", "language", {variant: {"method": variant.name}}, [0, 1, 2])) == 3
    with pytest.raises(ConfigError, match="'method=grpo' there, 'other' now"):
        lay_out(tmp_path / "grid", "language", {variant: {"method": "other"}}, [0])
    # What is printed beside the score changes no run.
    printed = {variant: {"method": variant.name, "comparison": {"show": ["greedy/length"]}}}
    assert len(lay_out(tmp_path / "grid", "language", printed, [0])) == 1
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    for place, why in (
        ("full/thesis.txt/grid", "cannot be written"),
        ("full", "is not a comparison"),
        ("full/thesis.txt", "is not a comparison"),
    ):
        with pytest.raises(ConfigError, match=why):
            lay_out(tmp_path / place, "language", {Variant(()): {}}, [0])
        with pytest.raises(ConfigError, match=why), grid_lock(tmp_path / place):
            pass
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.txt"]


def test_a_grid_that_another_process_runs_is_refused(tmp_path: Path):
    program = "import sys; from pathlib import Path; from groupwise_look.compare.grids import grid_lock\n"
    program += "with grid_lock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "grid")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with (
            pytest.raises(ConfigError, match="another `groupwise compare` runs this grid now"),
            grid_lock(tmp_path / "grid"),
        ):
            pass
        process.communicate(b"")
    with grid_lock(tmp_path / "grid"):
        pass


def test_a_folder_in_which_somebody_trains_is_not_begun_again(cells: list[Cell], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("groupwise_look.compare.grids._PATIENCE_SECONDS", 0.2)
    cells[0].folder.mkdir(parents=True)
    (cells[0].folder / "metrics.jsonl").write_text("")
    (cells[0].folder / "config.json").write_text("{}")
    with (cells[0].folder / "config.json").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (outcome,) = run_grid(cells[:1], workers=1, command=script(FINISH))
    assert "another process trains in its folder" in outcome.error
    assert (cells[0].folder / "metrics.jsonl").is_file()


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.mark.slow
def test_a_start_inside_a_run_is_told_the_run(tiny: Path, tmp_path: Path) -> None:
    run(load_experiment(tiny, ["stages.grpo.num_steps=1"]), tmp_path / "shared", controls=False)
    checkpoint = next((tmp_path / "shared" / "checkpoints").iterdir())
    for inside in (checkpoint, tmp_path / "shared" / "warm_up", tmp_path / "shared" / "nowhere"):
        expected = re.escape(f"start = '{inside}': it lies in the run {tmp_path / 'shared'}, and a start is the end of")
        with pytest.raises(ConfigError, match=f"^{expected}"):
            check_start(load_experiment(tiny, [f"start={inside}"]))
