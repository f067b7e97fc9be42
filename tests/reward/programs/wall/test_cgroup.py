"""Control groups: made where this machine lets them be, of both versions on folders that look like the kernel's."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path

import pytest

from groupwise.reward.programs.sandbox import run_limited
from groupwise.reward.wall import cgroup, machine_wall
from groupwise.reward.wall.machine_wall import Limits, Wall, best_wall
from groupwise.reward.wall.readable_paths import python


def second(folder: Path, subtree: str = "memory pids") -> tuple[str, str]:
    """Version 2: one tree, in which a parent hands its controllers on."""
    (folder / "user").mkdir()
    (folder / "user/cgroup.controllers").write_text("cpu memory pids\n")
    (folder / "user/cgroup.subtree_control").write_text(f"{subtree}\n")
    (folder / "mine").write_text("0::/user\n")
    return str(folder), str(folder / "mine")


def first(folder: Path) -> tuple[str, str]:
    """Version 1: a tree for each controller."""
    for name in ("memory/job", "cpu,cpuacct/job", "pids"):
        (folder / name).mkdir(parents=True)
    (folder / "mine").write_text("9:name=systemd:/\n8:pids:/\n4:memory:/job\n1:cpu,cpuacct:/job\n")
    return str(folder), str(folder / "mine")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel fills a new group with its files; these are empty, and are gone with the group."""
    best_wall()  # Looks once a process, at the true kernel.
    make, remove = os.mkdir, os.rmdir

    def mkdir(path: str, *rest: int) -> None:
        make(path, *rest)
        if "groupwise-" not in os.path.basename(path):
            return
        place = str(path)
        memory_files, pids_files = ("memory.limit_in_bytes", "memory.oom_control"), ("pids.max", "cpuacct.usage")
        version_2_files = ("memory.max", "memory.swap.max", "memory.events", "pids.max", "cpu.stat")
        for name in (
            "cgroup.procs",
            *(version_2_files if "/user/" in place else memory_files if "/memory/" in place else pids_files),
        ):
            Path(place, name).touch()

    def rmdir(path: str) -> None:
        for file in Path(path).iterdir():
            file.unlink()
        remove(path)

    monkeypatch.setattr(os, "mkdir", mkdir)
    monkeypatch.setattr(os, "rmdir", rmdir)


@pytest.mark.parametrize("tree", [second, first])
def test_a_group_bounds_what_it_takes_and_is_removed(tree: object, tmp_path: Path, kernel: None) -> None:
    group = cgroup.make(100, 8, *tree(tmp_path))  # pyright: ignore
    assert group is not None
    files = {file.name: file for file in tmp_path.rglob("groupwise-*/*")}
    most = files["memory.max" if tree is second else "memory.limit_in_bytes"]
    assert int(most.read_text()) == 164 * 2**20
    assert files["pids.max"].read_text() == "8"
    with machine_wall.wrap(["echo", "in"], Limits(), group=group) as (command, passed):
        assert subprocess.run(command, pass_fds=passed, capture_output=True, check=True).stdout == b"in\n"
    assert {file.read_text() for file in tmp_path.rglob("groupwise-*/cgroup.procs")} == {"0\n"}
    files["cpu.stat" if tree is second else "cpuacct.usage"].write_text(
        "usage_usec 2500000\n" if tree is second else "2500000000\n"
    )
    assert group.cpu_seconds == 2.5
    assert not group.ran_out
    files["memory.events" if tree is second else "memory.oom_control"].write_text("oom 3\noom_kill 1\n")
    assert group.ran_out
    group.remove()
    assert not list(tmp_path.rglob("groupwise-*"))


def test_where_controllers_are_not_handed_on_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: None
) -> None:
    place, mine = second(tmp_path, subtree="cpu")

    def refuse(path: str, text: str) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(cgroup, "_write", refuse)
    assert cgroup.make(100, 8, place, mine) is None
    assert cgroup.make(100, 8, str(tmp_path / "nowhere"), str(tmp_path / "nowhere")) is None


def test_an_abandoned_group_is_removed_and_a_young_one_is_not(tmp_path: Path, kernel: None) -> None:
    place, mine = second(tmp_path)
    for name, age in (("old", 7200), ("young", 10)):
        folder = tmp_path / "user" / f"groupwise-{name}"
        folder.mkdir()
        os.utime(folder, (time.time() - age, time.time() - age))
    group = cgroup.make(100, 8, place, mine)
    assert group is not None
    group.remove()
    assert [path.name for path in tmp_path.rglob("groupwise-*")] == ["groupwise-young"]


def test_what_is_missing_is_said() -> None:
    assert "no control group may be made" in Wall("bubblewrap", bounded=False).missing
    assert "no control group may be made" in Wall("landlock", 6, bounded=False).missing
    assert Wall("bubblewrap").missing == ""
    assert best_wall().bounded == cgroup.available()


@pytest.mark.skipif(
    not cgroup.available(),
    reason=(
        "this machine lets no control group be made; the sums are counted, and"
        " tests/reward/programs/wall/test_hostile.py tries that"
    ),
)
def test_a_burst_of_memory_between_two_looks_is_ended_by_the_kernel() -> None:
    # Ten processes that take 100 MB each at once: no process passes its own limit, all together pass the group's.
    burst = (
        "import os\nfor _ in range(9):\n    if os.fork() == 0: break\nheld = bytearray(100 * 2**20)\nimport time;"
        " time.sleep(600)"
    )
    before = set(Path("/sys/fs/cgroup").rglob("groupwise-*"))
    done = asyncio.run(run_limited([*python(), "-c", burst], Limits(memory_mb=200, disk_mb=8, wall_seconds=600.0)))
    assert done.limit == "memory"
    # Groups of programs that other tests run meanwhile go with those programs.
    left, deadline = set(Path("/sys/fs/cgroup").rglob("groupwise-*")) - before, time.monotonic() + 600
    while (left := {group for group in left if group.exists()}) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
