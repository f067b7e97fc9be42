"""The grid on a real Ray instance of this machine: with two workers, one of which is killed while its cell runs."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from groupwise.config import ConfigError
from groupwise.experiment import load_experiment
from groupwise_look.compare import ray_grid
from groupwise_look.compare.grids import Cell, lay_out, variants
from groupwise_look.compare.ray_grid import HEAD_SECONDS, ROOM_SECONDS, RayGrid, RayWatch, check_address

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
    until = time.monotonic() + 120
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


# A wrong address of a Ray cluster is one line within seconds.


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


def test_a_port_at_which_nobody_listens(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    with pytest.raises(ConfigError, match=rf"no Ray cluster at '127.0.0.1:{port}' \(.*refused\); give --address"):
        check_address(f"127.0.0.1:{port}")


def test_a_port_that_never_answers(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_grid, "PATIENCE_SECONDS", 0.1)
    with pytest.raises(ConfigError, match=r"no answer within 0\.1 s"):
        check_address(f"ray://127.0.0.1:{listener.getsockname()[1]}")


def test_a_server_of_another_kind() -> None:
    """A web server closes the connection or answers in text."""
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    threading.Thread(target=server.handle_request, daemon=True).start()
    with pytest.raises(ConfigError, match="no Ray"):
        check_address(f"127.0.0.1:{server.server_address[1]}")
    server.server_close()


def test_a_host_that_no_name_server_knows() -> None:
    with pytest.raises(ConfigError, match=r"no Ray cluster at 'head\.invalid:6379'"):
        check_address("head.invalid:6379")


@pytest.mark.nightly
def test_a_cluster_answers() -> None:
    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    context = ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False)
    try:
        check_address(context.address_info["gcs_address"])
    finally:
        ray.shutdown()


# What a grid says of the machines of its cluster, and when it stops waiting for them.


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def cluster(nodes: list[dict[str, Any]], head: str = "", client: bool = True) -> Any:
    return SimpleNamespace(
        nodes=lambda: nodes,
        util=SimpleNamespace(client=SimpleNamespace(ray=SimpleNamespace(is_connected=lambda: client))),
        get_runtime_context=lambda: SimpleNamespace(gcs_address=head),
    )


def node(name: str, alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"NodeID": name * 8, "Alive": alive, "NodeManagerAddress": f"host-{name}", "Resources": resources}


def test_a_machine_that_leaves_is_one_line() -> None:
    nodes, lines = [node("a", CPU=4.0), node("b", CPU=4.0)], []
    watch = RayWatch(cluster(nodes), gpus=0.0, grows=True, tell=lines.append)
    watch.look()
    assert lines == []
    nodes[1]["Alive"] = False
    watch.look()
    watch.look()
    assert lines == [
        "machine host-b (bbbbbbbb) has left the cluster; its runs begin again on another one, from their newest"
        " checkpoints"
    ]


def test_a_grid_does_not_wait_for_ever_for_a_machine() -> None:
    nodes, lines, clock = [node("a", CPU=4.0)], [], Clock()
    watch = RayWatch(cluster(nodes), gpus=0.5, grows=True, tell=lines.append, clock=clock)
    watch.look()
    assert lines == ["no machine of the cluster has 1 CPU and 0.5 GPU for a run; 10 minutes are waited for one"]
    clock.now = ROOM_SECONDS - 1
    nodes.append(node("b", CPU=1.0, GPU=1.0))
    watch.look()
    nodes.pop()
    clock.now += 10
    watch.look()
    clock.now += ROOM_SECONDS - 1
    watch.look()
    clock.now += 1
    with pytest.raises(ConfigError, match=r"no machine of the cluster has 1 CPU and 0.5 GPU .*--gpus-per-run"):
        watch.look()


def test_a_cluster_of_this_machine_alone_is_not_waited_for() -> None:
    watch = RayWatch(cluster([node("a", CPU=2.0)]), gpus=1.0, grows=False, tell=pytest.fail, clock=Clock())
    with pytest.raises(ConfigError, match="1 machines are there"):
        watch.look()


def test_a_head_that_is_gone_ends_the_grid_before_ray_ends_the_program() -> None:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    clock = Clock()
    ray = cluster([], address, client=False)
    ray.nodes = lambda: pytest.fail("a question to a dead head never returns")
    watch = RayWatch(ray, gpus=0.0, grows=True, tell=pytest.fail, clock=clock)
    watch.look()
    clock.now = HEAD_SECONDS
    with pytest.raises(ConfigError, match=f"the head of the Ray cluster at {address} has not answered for 20 s"):
        watch.look()
    assert HEAD_SECONDS < 60


WATCH_SCRIPT = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
with open(folder.parent / "begun", "a") as file:
    file.write(".")
time.sleep(8)
(folder / "summary.json").write_text("{}")
"""


def watch_script(cell: Cell) -> list[str]:
    return [sys.executable, "-S", "-c", WATCH_SCRIPT, str(cell.folder)]


def with_descendants(roots: list[int]) -> list[int]:
    """Returns processes and all that they have started, the parents first: what ends with a machine."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
    family = list(roots)
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family


@pytest.mark.nightly
def test_the_death_of_a_real_machine_is_one_line_and_its_runs_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 2}
    head = {**small, "include_dashboard": False, "_system_config": quick}
    machines = Cluster(initialize_head=True, head_node_args=head)
    cells = lay_out(tmp_path / "grid", "tiny", {variant: {} for variant in variants(["method=grpo"])}, [0, 1])
    lines: list[str] = []
    try:
        other = machines.add_node(**small)
        begun = cells[0].folder.parent / "begun"

        def kill() -> None:
            until = time.monotonic() + 120
            while time.monotonic() < until and not (begun.is_file() and len(begun.read_text()) == 2):
                time.sleep(0.05)
            servers = [process.process.pid for processes in other.all_processes.values() for process in processes]
            for identity in with_descendants(servers):
                os.kill(identity, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        with closing(RayGrid(machines.address)) as grid:
            capfd.readouterr()
            outcomes = list(grid.run(cells, command=watch_script, tell=lines.append))
            said = capfd.readouterr()
        killer.join()
    finally:
        machines.shutdown()
        os.environ.pop("RAY_ADDRESS", None)
    assert [outcome.error for outcome in outcomes] == ["", ""]
    assert begun.read_text() == "..."
    assert len(lines) == 1
    assert "has left the cluster" in lines[0]
    assert (said.out, said.err) == ("", "")
