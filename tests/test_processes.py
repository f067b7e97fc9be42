"""Alone, or rank 0."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from groupwise.processes import check_launch

MEETING = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, None),
        ({"WORLD_SIZE": "1", "RANK": "0"}, None),
        ({"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", **MEETING}, None),
        ({"RANK": "5"}, "RANK = 5 and no WORLD_SIZE"),
        ({"WORLD_SIZE": "1", "RANK": "1"}, "RANK = 1 and WORLD_SIZE = 1"),
        ({"WORLD_SIZE": "0"}, "RANK = 0 and WORLD_SIZE = 0"),
        ({"WORLD_SIZE": "2", "RANK": "2", **MEETING}, "RANK = 2 and WORLD_SIZE = 2"),
        ({"WORLD_SIZE": "2"}, "2 processes train together, and RANK, MASTER_ADDR, MASTER_PORT, by which"),
        ({"WORLD_SIZE": "2", "RANK": "0", **MEETING, "MASTER_ADDR": ""}, "and MASTER_ADDR, by which they meet"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE = 'two'"),
        ({"WORLD_SIZE": ""}, "WORLD_SIZE = ''"),
        ({"WORLD_SIZE": "2", "RANK": "-1", **MEETING}, "RANK = '-1'"),
        ({"WORLD_SIZE": "2", "RANK": "0", **MEETING, "MASTER_PORT": "abc"}, "MASTER_PORT = 'abc'"),
    ],
)
def test_an_environment_that_says_half_of_a_launch_is_refused(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], said: str | None
) -> None:
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", *MEETING):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if said is None:
        check_launch()
        return
    with pytest.raises(ValueError, match=said) as refused:
        check_launch()
    assert "unset WORLD_SIZE, RANK" in str(refused.value)


CHILD = (
    "from groupwise.processes import end_with_parent; end_with_parent(); import time; print('begun', flush=True);"
    " time.sleep(60)"
)
PARENT = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], env={{**os.environ, "GROUPWISE_PARENT": str(os.getpid())}}, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""  # noqa: E501


@pytest.mark.skipif(sys.platform != "linux", reason="a request of Linux")
def test_a_process_ends_with_the_one_that_started_it() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    until = time.monotonic() + 600
    while (state := _state(child)) not in ("", "Z"):
        assert time.monotonic() < until, f"still in state {state}"
        time.sleep(0.05)
    orphan = subprocess.run(
        [sys.executable, "-c", CHILD], env={**os.environ, "GROUPWISE_PARENT": "1234567"}, capture_output=True
    )
    assert (orphan.returncode, orphan.stdout) == (-15, b""), "its parent was gone before it could ask"


def _state(process: int) -> str:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(") ")[2][:1]
    except FileNotFoundError:
        return ""
