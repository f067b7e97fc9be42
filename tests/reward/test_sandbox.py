"""Limits that hold: each program here really does what it must not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from groupwise.reward.sandbox import Finished, Limits, can_count, can_isolate, python, run_limited


def run(program: str, folder: Path, limits: Limits | None = None, stdin: str = "") -> Finished:
    return asyncio.run(run_limited([*python(), "-c", program], folder, limits or Limits(), stdin))


def test_status_output_and_input(tmp_path: Path) -> None:
    done = run("import sys; print(input() * 2); print('aside', file=sys.stderr); sys.exit(3)", tmp_path, stdin="ab\n")
    assert done == Finished(3, "abab\n", False)
    assert (tmp_path / "stderr.txt").read_text() == "aside\n"


def test_processor_time(tmp_path: Path) -> None:
    began = time.monotonic()
    done = run("while True: pass", tmp_path, Limits(cpu_seconds=1, wall_seconds=20))
    assert done.status != 0
    assert not done.timed_out
    assert time.monotonic() - began < 15


def test_wall_time(tmp_path: Path) -> None:
    done = run("import time; print('here', flush=True); time.sleep(60)", tmp_path, Limits(wall_seconds=0.5))
    assert (done.timed_out, done.output) == (True, "here\n")


def test_memory(tmp_path: Path) -> None:
    done = run("x = bytearray(400 * 2**20)", tmp_path, Limits(memory_mb=200))
    assert done.status == 1
    assert "MemoryError" in (tmp_path / "stderr.txt").read_text()
    assert run("x = bytearray(40 * 2**20)", tmp_path, Limits(memory_mb=200)).status == 0


def test_output(tmp_path: Path) -> None:
    done = run("while True: print('spam' * 1000)", tmp_path, Limits(output_mb=1))
    assert done.status != 0
    assert len(done.output) <= 2**20


def test_environment_holds_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sesame")
    done = run("import os, tempfile; print(os.environ.get('MY_KEY'), os.environ['HOME'] == os.getcwd() == tempfile.gettempdir())", tmp_path)
    assert done.output == "None True\n"


@pytest.mark.skipif(not can_isolate(), reason="this system has no user namespaces")
def test_network(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        program = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 2); print('in')"
        assert run(program, tmp_path).status == 1
        assert run(program, tmp_path, Limits(network=True)).output == "in\n"


@pytest.mark.skipif(not can_count(), reason="this system cannot count the processes of a user namespace")
@pytest.mark.parametrize("network", [False, True])
def test_number_of_processes(tmp_path: Path, network: bool) -> None:
    program = """
import os, time
try:
    for number in range(40):
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
except OSError as error:
    print(number, type(error).__name__)
"""
    for _ in range(2):
        # Counted for each program by itself.
        number, error = run(program, tmp_path, Limits(num_processes=16, network=network)).output.split()
        assert (int(number) in range(10, 16), error) == (True, "BlockingIOError")


@pytest.mark.parametrize("leave", ["", "os.setsid();"])
def test_children_end_with_it(tmp_path: Path, leave: str) -> None:
    if leave and not can_isolate():
        pytest.skip("only a process namespace holds what leaves its group")
    program = f"import os, time\nif os.fork() == 0:\n    {leave}\n    time.sleep(0.7); open('alive', 'w')\n"
    run(program, tmp_path)
    time.sleep(1.0)
    assert not (tmp_path / "alive").exists()


@pytest.mark.skipif(not can_isolate(), reason="this system has no user namespaces")
def test_a_program_that_leaves_its_group_is_ended_all_the_same(tmp_path: Path) -> None:
    program = "import os, time\nos.setsid(); print('left', flush=True); time.sleep(2.0); open('alive', 'w')"
    assert run(program, tmp_path, Limits(wall_seconds=1.5)) == Finished(-9, "left\n", True)
    time.sleep(1.0)
    assert not (tmp_path / "alive").exists()


def test_a_program_ends_also_where_the_caller_was_killed(tmp_path: Path) -> None:
    caller = (
        "import asyncio, pathlib, sys; from groupwise.reward.sandbox import *\n"
        'program = \'import os, time; print(os.getpid(), flush=True); time.sleep(3); open("alive", "w")\'\n'
        f"asyncio.run(run_limited([*python(), '-c', program], pathlib.Path({str(tmp_path)!r}), Limits(wall_seconds=0.5)))"
    )
    with subprocess.Popen([sys.executable, "-c", caller]) as parent:
        while not (tmp_path / "stdout.txt").exists() or not (tmp_path / "stdout.txt").read_text():
            time.sleep(0.02)
        parent.kill()
    time.sleep(3.2)
    assert not (tmp_path / "alive").exists()


def test_cancelling_kills(tmp_path: Path) -> None:
    async def cancelled() -> None:
        task = asyncio.ensure_future(run_limited([*python(), "-c", "import time; time.sleep(0.8); open('alive', 'w')"], tmp_path, Limits()))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    time.sleep(0.8)
    assert not (tmp_path / "alive").exists()
