"""Limits that hold: each program here really does what it must not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from groupwise.reward.programs.sandbox import Finished, Limits, python, run_limited
from groupwise.reward.wall import machine_wall


def run(program: str, limits: Limits | None = None, stdin: str = "") -> Finished:
    return asyncio.run(run_limited([*python(), "-c", program], limits or Limits(wall_seconds=60.0), stdin=stdin))


def alive(marker: str) -> bool:
    """Whether a program sleeps for so long; what starts it has more arguments before these."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", marker.encode()]:
                return True
    return False


def until(true: object) -> None:
    ends = time.monotonic() + 120.0
    while not true():  # pyright: ignore
        assert time.monotonic() < ends
        time.sleep(0.02)


MARKER = str(10**9 + os.getpid())
SLEEPS = f"import os\nif os.fork() == 0: LEAVE; os.execlp('sleep', 'sleep', '{MARKER}')\nprint('begun', flush=True)\n"


def test_status_output_and_input() -> None:
    done = run("import sys; print(input() * 2); print('aside', file=sys.stderr); sys.exit(3)", stdin="ab\n")
    assert done == Finished(3, "abab\n", False)
    assert done.errors == "aside\n"


def test_processor_time() -> None:
    done = run("while True: pass", Limits(cpu_seconds=1, wall_seconds=600))
    assert done.status != 0
    assert not done.timed_out


def test_wall_time() -> None:
    done = run("import time; time.sleep(600)", Limits(wall_seconds=0.5))
    assert (done.timed_out, done.output) == (True, "")


def test_memory() -> None:
    done = run("x = bytearray(400 * 2**20)", Limits(memory_mb=200))
    assert done.status == 1
    assert "MemoryError" in done.errors
    assert run("x = bytearray(40 * 2**20)", Limits(memory_mb=200)).status == 0


def test_output() -> None:
    done = run("while True: print('spam' * 1000)", Limits(output_mb=1))
    assert done.status != 0
    assert len(done.output) <= 2**20


def test_environment_holds_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sesame")
    done = run(
        "import os, tempfile; print(os.environ.get('MY_KEY'), os.environ['HOME'] == os.getcwd() =="
        " tempfile.gettempdir())"
    )
    assert done.output == "None True\n"


@pytest.mark.skipif(not machine_wall.standing().denies_network, reason="this system takes the network from nobody")
def test_network() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        program = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 2); print('in')"
        assert run(program).status == 1
        assert run(program, Limits(network=True, wall_seconds=60.0)).output == "in\n"


@pytest.mark.skipif(
    not machine_wall.standing().bounded, reason="only a control group counts the processes of root's programs"
)
@pytest.mark.parametrize("network", [False, True])
def test_number_of_processes(network: bool) -> None:
    program = """
import os, signal
try:
    for number in range(40):
        if os.fork() == 0:
            signal.pause()
            os._exit(0)
except OSError as error:
    print(number, type(error).__name__)
"""
    for _ in range(2):
        # Counted for each program by itself.
        number, error = run(program, Limits(num_processes=16, network=network, wall_seconds=60.0)).output.split()
        assert (int(number) in range(10, 16), error) == (True, "BlockingIOError")


@pytest.mark.parametrize("leave", ["pass", "os.setsid()"])
def test_children_end_with_it(leave: str) -> None:
    assert run(SLEEPS.replace("LEAVE", leave)).output == "begun\n"
    assert not alive(MARKER)


def test_a_program_that_leaves_its_group_is_ended_all_the_same() -> None:
    program = (
        "import os\nif os.fork(): os._exit(0)\nos.setsid(); print('left', flush=True); os.execlp('sleep', 'sleep',"
        f" '{MARKER}')"
    )
    assert run(program).output in ("left\n", "")
    assert not alive(MARKER)


def test_a_program_ends_also_where_the_caller_was_killed() -> None:
    caller = (
        "import asyncio; from groupwise.reward.programs.sandbox import *\n"
        f"asyncio.run(run_limited(['sleep', '{MARKER}'], Limits(wall_seconds=600.0)))"
    )
    with subprocess.Popen([sys.executable, "-c", caller]) as parent:
        until(lambda: alive(MARKER))
        parent.kill()
    until(lambda: not alive(MARKER))


def test_cancelling_kills() -> None:
    async def cancelled() -> None:
        task = asyncio.ensure_future(run_limited(["sleep", MARKER], Limits(wall_seconds=600.0)))
        while not alive(MARKER):
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert not alive(MARKER)


def test_a_program_that_does_not_exist_fails() -> None:
    done = asyncio.run(run_limited(["no-such-command"], Limits()))
    assert done.status in (125, 127)
    assert "no-such-command" in done.errors


def test_a_wall_that_cannot_be_built_is_no_answer_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_wall.bubblewrap, "executable", lambda: "false")
    monkeypatch.setattr(machine_wall, "standing", lambda: machine_wall.Wall("bubblewrap"))
    assert run("print(1)").refused == "the wall ended without a word"
