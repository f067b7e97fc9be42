"""Programs against tests: right, wrong, hostile and endless ones."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from groupwise.reward import RewardError, Rewards, UnitTests, score
from groupwise.reward.programs.sandbox import Finished, Limits, python, run_limited
from groupwise.reward.programs.unit_tests import python_code
from groupwise.reward.wall import machine_wall
from groupwise.reward.wall.machine_wall import Wall

TESTS = ["assert add(1, 2) == 3", "assert add(-1, 1) == 0", "assert add('a', 'b') == 'ab'"]


def scores(programs: list[str], tests: list[Any], **settings: Any) -> list[float | None]:
    return score({"code": UnitTests(**settings)}, ["?"] * len(programs), programs, {"tests": tests}).values["code"]


def test_share_of_tests_passed_or_all_or_nothing() -> None:
    programs = [
        "def add(a, b): return a + b",
        "def add(a, b): return int(a) + int(b)",
        "def add(a, b): return 0",
        "def add(a, b: return",
    ]
    assert scores(programs, [TESTS] * 4) == pytest.approx([1.0, 2 / 3, 1 / 3, 0.0])
    assert scores(programs[:2], [TESTS] * 2, score="all", wrong=-1.0) == [1.0, -1.0]


def test_the_last_fenced_block_is_the_program() -> None:
    text = (
        "First:\n```python\ndef add(a, b): return 0\n```\nBetter:\n```py\ndef add(a, b):\n    return a +"
        " b\n```\nRun:\n```bash\npython x.py\n```"
    )
    assert scores([text], [TESTS]) == [1.0]
    assert python_code("```\nx\n```") == "x\n"
    assert python_code("x", require_fence=True) is None


def test_no_program_is_wrong_and_counted() -> None:
    table = score({"code": UnitTests(wrong=-1.0)}, ["?"] * 2, ["", "```python\nunfinished"], {"tests": [TESTS] * 2})
    assert table.values["code"] == [-1.0, -1.0]
    assert [(event.name, event.member) for event in table.events] == [("no_program", 0), ("no_program", 1)]


TRICKS = [
    "import sys; sys.exit(0)",
    "import os; os._exit(0)",
    "def add(a, b):\n    raise SystemExit(0)",
    "import atexit, os\natexit.register(os._exit, 0)",
    "import sys; print(sys.stdin.read())",
    "import os; os.lseek(0, 0, 0); print(os.read(0, 100))",
    "import os; print([open(name).read() for name in os.listdir('.')])",
]


def test_cheap_tricks_do_not_pass_in_the_shared_process() -> None:
    given = scores(TRICKS, [["assert add(1, 2) == 3"]] * len(TRICKS), process="shared")
    assert dict(zip(TRICKS, given, strict=True)) == dict.fromkeys(TRICKS, 0.0)


def test_in_the_programs_own_process_a_test_may_do_all_and_so_may_the_program() -> None:
    vector = (
        "class V:\n    def __init__(self, x): self.x = [x]\n    def __mul__(self, by): return V(self.x[0] * by)\n   "
        " def first(self): return self.x[0]"
    )
    tests = [
        ["assert (V(2) * 3).first() == 6", "v = V(1); v.x.append(2); assert v.x == [1, 2]", "assert V(1).first() == 2"]
    ]
    assert scores([vector], tests, process="shared") == pytest.approx([2 / 3])
    equal_to_all = "class E:\n    def __eq__(self, other): return True\ndef add(a, b): return E()"
    assert [scores([equal_to_all], [TESTS], process=process) for process in ("apart", "shared")] == [[0.0], [1.0]]


def test_input_and_output() -> None:
    tests = [{"input": "1 2\n", "output": "3"}, {"input": "5 5\n", "output": "10\n"}, {"input": "", "output": "0"}]
    program = "if __name__ == '__main__':\n    print(sum(map(int, input().split())), '  ')"
    assert scores([program], [tests]) == pytest.approx([2 / 3])


def test_endless_programs_fail_and_are_counted() -> None:
    programs = ["import signal\ndef add(a, b): signal.pause()", "import time; time.sleep(600)"]
    reward = UnitTests(wall_seconds=0.7)
    table = score({"code": reward}, ["?"] * 2, programs, {"tests": [TESTS[:1]] * 2})
    assert table.values["code"] == [0.0, 0.0]
    assert [(event.name, event.member, event.detail) for event in table.events] == [
        ("program_timeout", m, "1 of 1 tests") for m in (0, 1)
    ]


def test_past_the_rewards_own_time_every_program_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    reward = UnitTests(timeout_seconds=0.5, wall_seconds=500.0)
    with Rewards({"code": reward}) as rewards:
        table = rewards.score(["?"], ["import time; time.sleep(600)"], {"tests": [TESTS]})
    assert table.values["code"] == [None]
    assert table.events[0].name == "timeout"

    end = time.monotonic() + 600
    while list(tmp_path.iterdir()):
        assert time.monotonic() < end
        time.sleep(0.03)


@pytest.mark.parametrize("tests", [[], [3], [{"input": "1"}]])
def test_data_without_tests_are_an_error(tests: Any) -> None:
    with pytest.raises(RewardError, match=r"column 'tests' holds .*write a list of Python texts or of tables"):
        scores(["x = 1"], [tests])


def test_a_machine_without_a_wall_is_said_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        machine_wall, "best_wall", lambda: Wall("none", filtered=False, refused="bwrap: Operation not permitted")
    )
    with pytest.raises(RewardError, match=r'network = "deny" cannot be kept'):
        Rewards({"code": UnitTests(network="deny")})
    with pytest.raises(
        RewardError,
        match=(
            r'wall = "required", and this machine refuses it \(bwrap: Operation not permitted\); allow user namespaces'
        ),
    ):
        Rewards({"code": UnitTests(wall="required")})
    assert "programs may read what this user may" in Rewards({"code": UnitTests()}).remarks[0]
    assert scores(["def add(a, b): return a + b"], [TESTS]) == [1.0]


def test_a_fault_of_the_sandbox_is_a_wrong_answer_with_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(values: str) -> list[str]:
        raise RecursionError("a bug of ours")

    monkeypatch.setattr("groupwise.reward.programs.unit_tests._lines", broken)
    tests = [[{"input": "", "output": "1"}], TESTS[:1]]
    table = score(
        {"code": UnitTests(wrong=-1.0)}, ["?"] * 2, ["print(1)", "def add(a, b): return a + b"], {"tests": tests}
    )
    assert table.values["code"] == [-1.0, 1.0]
    assert [(event.name, event.member, event.detail) for event in table.events] == [
        ("program_not_examined", 0, "RecursionError: a bug of ours")
    ]


def test_a_system_on_which_no_program_runs_is_refused_when_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.reward.programs.unit_tests.python", lambda: ["false"])
    with pytest.raises(RewardError, match=r"reward 'code': unit_tests: an empty program ends with .*status=1"):
        Rewards({"code": UnitTests()})


# Limits that hold: each program here really does what it must not.


def run(program: str, limits: Limits | None = None, stdin: str = "") -> Finished:
    return asyncio.run(run_limited([*python(), "-c", program], limits or Limits(wall_seconds=60.0), stdin=stdin))


def alive(marker: str) -> bool:
    """Whether a program sleeps for so long; what starts it has more arguments before these."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", marker.encode()]:
                return True
    return False


MARKER = str(10**9 + os.getpid())


def test_status_output_and_input() -> None:
    done = run("import sys; print(input() * 2); print('aside', file=sys.stderr); sys.exit(3)", stdin="ab\n")
    assert done == Finished(3, "abab\n", False)
    assert done.errors == "aside\n"


def test_memory() -> None:
    done = run("x = bytearray(400 * 2**20)", Limits(memory_mb=200))
    assert done.status == 1
    assert "MemoryError" in done.errors
    assert run("x = bytearray(40 * 2**20)", Limits(memory_mb=200)).status == 0


def test_environment_holds_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sesame")
    done = run(
        "import os, tempfile; print(os.environ.get('MY_KEY'), os.environ['HOME'] == os.getcwd() =="
        " tempfile.gettempdir())"
    )
    assert done.output == "None True\n"


@pytest.mark.skipif(not machine_wall.best_wall().denies_network, reason="this system takes the network from nobody")
def test_network() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        program = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 2); print('in')"
        assert run(program).status == 1
        assert run(program, Limits(network=True, wall_seconds=60.0)).output == "in\n"


@pytest.mark.skipif(
    not machine_wall.best_wall().bounded, reason="only a control group counts the processes of root's programs"
)
def test_number_of_processes() -> None:
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
    number, error = run(program, Limits(num_processes=16, wall_seconds=60.0)).output.split()
    assert (int(number) in range(10, 16), error) == (True, "BlockingIOError")


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
    monkeypatch.setattr(machine_wall, "best_wall", lambda: machine_wall.Wall("bubblewrap"))
    assert run("print(1)").refused == "the wall ended without a word"
