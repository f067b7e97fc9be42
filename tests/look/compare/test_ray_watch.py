"""What a grid says of the machines of its cluster, and when it stops waiting for them."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from groupwise.config import ConfigError
from groupwise_look.compare.grids import Cell, lay_out, variants
from groupwise_look.compare.ray_grid import HEAD_SECONDS, ROOM_SECONDS, RayGrid, RayWatch


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


SCRIPT = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
with open(folder.parent / "begun", "a") as file:
    file.write(".")
time.sleep(8)
(folder / "summary.json").write_text("{}")
"""


def script(cell: Cell) -> list[str]:
    return [sys.executable, "-S", "-c", SCRIPT, str(cell.folder)]


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
            outcomes = list(grid.run(cells, command=script, tell=lines.append))
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
