"""Hostile programs, really run behind every wall: each gets what it deserves, its neighbour is right, the machine is as
before, and it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.reward.programs.wall.conftest import MECHANISMS
from tests.reward.programs.wall.hostile import CHAPTERS, GOOD, TESTS, Program

from groupwise.reward import UnitTests
from groupwise.reward.base import Noted
from groupwise.reward.programs.isolated_test import tester
from groupwise.reward.wall import machine_wall

_SECONDS = 300.0
_MARKER = 98_765
_VICTIM = (
    "import signal, sys, time\nsignal.signal(signal.SIGURG, lambda *given: print('heard', flush=True))\nprint('ready',"
    " flush=True)\ntime.sleep(600)"
)


@dataclass
class Outside:
    """Files, sockets and processes outside of the wall, and their state before."""

    folder: Path
    names: dict[str, str]
    victim: subprocess.Popen[str]
    udp: socket.socket
    before: dict[str, object] = field(default_factory=dict)

    def looks(self) -> dict[str, object]:
        secret = self.folder / "secret"
        status = secret.stat()
        return {
            "content": secret.read_text(),
            "status": (status.st_mode, status.st_uid, status.st_mtime_ns, status.st_nlink),
            "beside it": sorted(os.listdir(self.folder)),
            "temporary": sorted(name for name in os.listdir(tempfile.gettempdir()) if name.startswith("groupwise-")),
            "shared memory": sorted(name for name in os.listdir("/dev/shm") if name.startswith("groupwise-test")),
            "shared memory of the system": Path("/proc/sysvipc/shm").read_text(),
            "processes": _running(str(_MARKER)),
            "victim": (
                self.victim.poll(),
                os.sched_getaffinity(self.victim.pid),
                os.getpriority(os.PRIO_PROCESS, self.victim.pid),
            ),
        }


def _running(argument: str) -> list[str]:
    running = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            running += [path.parent.name] if argument.encode() in path.read_bytes().split(b"\0") else []
    return running


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outside]:
    monkeypatch.setenv("MY_KEY", "sesame")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    folder = tmp_path / "outside"
    folder.mkdir()
    (tmp_path / "temporary").mkdir()
    (folder / "secret").write_text("sesame")
    abstract = f"groupwise-test-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        for address in (f"\0{abstract}", str(folder / "socket")):
            listening = stack.enter_context(socket.socket(socket.AF_UNIX))
            listening.bind(address)
            listening.listen()
        victim = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", _VICTIM], stdout=subprocess.PIPE, text=True)
        )
        stack.callback(victim.kill)
        assert victim.stdout is not None
        assert victim.stdout.readline() == "ready\n"
        names = {
            "secret": str(folder / "secret"),
            "outside": str(folder),
            "temporary": tempfile.gettempdir(),
            "home": os.path.expanduser("~"),
            "tester": tester.__file__,
            "victim": str(victim.pid),
            "trainer": str(os.getpid()),
            "marker": str(_MARKER),
            "tcp": str(tcp.getsockname()[1]),
            "udp": str(udp.getsockname()[1]),
            "abstract": abstract,
        }
        scene = Outside(folder, names, victim, udp)
        scene.before = scene.looks()
        yield scene


def _value(value: object) -> object:
    return value.value if isinstance(value, Noted) else value


def examine(programs: dict[str, Program], outside: Outside) -> None:
    """Runs programs side by side, each with a neighbour, and looks at their marks and at what stands outside."""
    pattern = re.compile("{(" + "|".join(outside.names) + ")}")
    codes, tests = [], []
    for code, program_tests, _ in programs.values():
        # Each has a neighbour, whose mark it must not touch.
        codes += [pattern.sub(lambda match: outside.names[match[1]], code), GOOD]
        tests += [program_tests, TESTS]
    reward = UnitTests(cpu_seconds=2.0, wall_seconds=12.0).open()
    values = asyncio.run(asyncio.wait_for(reward([""] * len(codes), codes, tests=tests), _SECONDS))
    assert values[1::2] == [1.0] * len(programs)
    marks = dict(zip(programs, map(_value, values[::2]), strict=True))
    expected = {name: marks[name] if deserved is None else deserved for name, (_, _, deserved) in programs.items()}
    assert marks == expected
    assert "program_not_examined" not in {value.event for value in values if isinstance(value, Noted)}
    # A folder with ten thousand others in it may take a while longer than its program.
    _until(lambda: outside.looks()["temporary"] == [])
    assert outside.looks() == outside.before
    with pytest.raises(BlockingIOError):
        outside.udp.recv(100)
    outside.victim.kill()
    assert outside.victim.stdout is not None
    assert outside.victim.stdout.read() == ""


def test_a_program_of_every_chapter_gets_what_it_deserves_and_hurts_nobody(outside: Outside) -> None:
    """Behind the wall that this machine takes."""
    names = [
        *("a fifo in the place of its output", "reads what is not its own", "changes what is not its own"),
        *("3 GB", "memory without a name", "signals everybody", "leaves daemons", "the network", "mounts and roots"),
    ]
    every = {name: (chapter, program) for chapter in CHAPTERS for name, program in CHAPTERS[chapter].items()}
    assert len({every[name][0] for name in names}) >= 5
    examine({name: every[name][1] for name in names}, outside)


@pytest.mark.parametrize(
    ("mechanism", "chapter"),
    [
        pytest.param(mechanism, chapter, marks=pytest.mark.slow if mechanism == "bubblewrap" else pytest.mark.nightly)
        for mechanism in MECHANISMS
        for chapter in CHAPTERS
    ],
    indirect=["mechanism"],
)
def test_every_hostile_program_gets_what_it_deserves_and_hurts_nobody(
    mechanism: str, chapter: str, outside: Outside
) -> None:
    examine(CHAPTERS[chapter], outside)


def test_the_hostile_programs_are_at_least_forty() -> None:
    assert sum(map(len, CHAPTERS.values())) >= 40


@pytest.mark.slow
def test_nothing_outlives_a_trainer_that_is_killed(mechanism: str, tmp_path: Path) -> None:
    program = (
        "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid(); os.execlp('sleep', 'sleep',"
        " '{marker}')\nopen('f', 'w')\ntime.sleep(600)"
    )
    marker = str(10**8 + os.getpid())
    trainer = (
        "import asyncio, tempfile\nfrom groupwise.reward import UnitTests\n"
        "from groupwise.reward.wall import machine_wall\n"
        "from groupwise.reward.wall.machine_wall import Wall\n"
        f"wall = {machine_wall.best_wall()!r}\nmachine_wall.best_wall = lambda: wall\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        "asyncio.run(UnitTests(wall_seconds=500.0)([''],"
        f" [{program.replace('{marker}', marker)!r}], tests=[['assert True']]))"
    )
    with subprocess.Popen([sys.executable, "-c", trainer]) as process:
        _until(lambda: len(_running(marker)) == 3)
        process.kill()
    _until(lambda: not _running(marker) and not os.listdir(tmp_path))


def _until(true: object) -> None:
    until = time.monotonic() + _SECONDS
    while not true():  # pyright: ignore
        assert time.monotonic() < until
        time.sleep(0.05)
