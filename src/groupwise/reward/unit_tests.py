"""Unit tests: a completion's program, run against tests under limits."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.processes import is_first_process
from groupwise.reward import examination
from groupwise.reward.base import Reward, Value
from groupwise.reward.error import RewardError
from groupwise.reward.noted import Noted
from groupwise.reward.sandbox import Limits, can_isolate, python, run_limited
from groupwise.reward.text import Text, completion_text
from groupwise.reward.worker import Worker

_FENCE = re.compile(r"^```[ \t]*([\w+-]*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SECONDS_TO_END = 0.5

# A program that ends the interpreter before the test ran would otherwise pass with status 0: only the token says that it did.
# Token and test come by standard input, which is closed before the program runs, so that it finds neither in a file.
_SHARED = """import os, sys
token, test, out = sys.stdin.readline(), sys.stdin.read(), sys.stdout
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
space = {"__name__": "solution"}
with open("solution.py", encoding="utf-8") as file:
    exec(compile(file.read(), "solution.py", "exec"), space)
exec(compile(test, "test.py", "exec"), space)
out.write("\\n" + token)
"""


def python_code(text: str, require_fence: bool = False) -> str | None:
    """The program in a completion: its last fenced Python block; the whole text where there is no fence at all.

    Args:
        text: a completion.
        require_fence: whether code outside a fence does not count.

    Example:
        >>> python_code("Try:\\n```python\\nx = 1\\n```\\nDone.")
        'x = 1\\n'
        >>> python_code("x = 1")
        'x = 1'
        >>> python_code("```python\\nx = 1") is None
        True
    """
    blocks = [code for language, code in _FENCE.findall(text) if language.lower() in ("", "python", "python3", "py")]
    if blocks:
        return blocks[-1]
    return None if require_fence or "```" in text else text


@final
class UnitTests(Reward):
    """The share of tests that a completion's program passes, or 1 for all and 0 for less.

    The tests column holds a list a member (or one test, or a JSON-able list) of either kind:
    Python text that is run after the program in the same names and must not raise (`assert add(1, 2) == 3`),
    or a table `{input, output}`: the program is run with this input and must print this output (spaces at line ends apart).

    Every test runs the program in a process and folder of its own. No program gives `wrong`. See `sandbox` for what the limits hold and what they do not.

    Python text runs in a second process, which the program does not reach: results come over as plain data (built-in kinds, dates, decimals, numpy arrays),
    and what is expected never goes there. An object of the program's own stays with it: the test may call it, read it and compare two of them, but beside
    plain data it is equal to nothing and takes no part in arithmetic. The program is given plain data, functions and iterators; it does not see the test's
    names, and a test imports what it compares with. The program's names are there as they are, and as the module `solution`. A list read from them is a copy:
    only the program changes its own. `unittest.main()` ends the process, which no test that passes does; write the asserts, or run the suite.
    Tests that need more than that, which tests of classes may, take `process = "shared"`.

    Example:
        >>> tests = [["assert add(1, 2) == 3", "assert add(1, 1) == 3"]]
        >>> asyncio.run(UnitTests()([""], ["def add(a, b): return a + b"], tests=tests))
        [0.5]
    """

    kind: Literal["unit_tests"] = "unit_tests"
    column: str = "tests"
    """The data column with the tests."""
    score: Literal["fraction", "all"] = "fraction"
    """The share of tests passed, or all or nothing."""
    process: Literal["apart", "shared"] = "apart"
    """Where a test that is Python text runs: in a process that the program does not reach, or in the program's own. There a test may do all that Python can,
    and so may the program: an object that is equal to everything passes."""
    require_fence: bool = False
    """A completion without a fenced block has no program."""
    cpu_seconds: Annotated[float, Field(gt=0)] = 5.0
    memory_mb: Annotated[int, Field(ge=64)] = 1024
    wall_seconds: Annotated[float, Field(gt=0)] = 10.0
    num_processes: Annotated[int, Field(ge=1)] = 64
    """Processes and threads of one program at a time, where the system can count them: a program that starts itself again and again ends there."""
    network: Literal["deny", "deny_if_possible", "allow"] = "deny_if_possible"
    """`deny` is an error where the system cannot; `deny_if_possible` warns once."""
    num_parallel: Annotated[int, Field(ge=1)] | None = None
    """Programs at once; where absent, one a processor core."""
    correct: float = 1.0
    """The reward for all tests passed; the share is scaled between `wrong` and this."""
    wrong: float = 0.0
    timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 600.0

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def ends(self) -> tuple[float, float]:
        return (min(self.wrong, self.correct), max(self.wrong, self.correct))

    def open(self) -> UnitTests:
        """The function that scores; refuses a machine without the means to isolate, unless told otherwise."""
        if self.network != "allow" and not can_isolate():
            if self.network == "deny":
                lacking = 'unit_tests: this system has no user namespaces (unshare), so network = "deny" cannot be kept'
                raise RewardError(f'{lacking}; run in a container without network and write "allow"')
            if is_first_process():
                warnings.warn("unit_tests: this system cannot take the network from the programs it runs; run what you trust, or use a container", stacklevel=2)
        with tempfile.TemporaryDirectory(prefix="groupwise-") as name:
            # In a thread: a caller may have an event loop of its own, as a notebook has.
            worker = Worker("unit_tests")
            tried = worker.start(lambda: run_limited([*python(), "-c", "pass"], Path(name), self._limits()))
            tried.done.wait()
            worker.leave()
        if tried.error is not None or tried.value.status != 0:
            raise RewardError(
                f"unit_tests: an empty program ends with {tried.error or tried.value} under memory_mb = {self.memory_mb}, cpu_seconds = {self.cpu_seconds:g}; "
                "raise memory_mb, or lower both to what this user may have (ulimit -a)"
            )
        return self

    def _limits(self) -> Limits:
        return Limits(self.cpu_seconds, self.memory_mb, self.wall_seconds, network=self.network == "allow", num_processes=self.num_processes)

    async def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[Value]:
        free = asyncio.Semaphore(self.num_parallel or len(os.sched_getaffinity(0)))
        members = zip(completions, columns[self.column], strict=True)
        return list(await asyncio.gather(*(self._member(completion_text(completion), _as_tests(tests, self.column), free) for completion, tests in members)))

    async def _member(self, text: str, tests: Sequence[Any], free: asyncio.Semaphore) -> Value:
        code = python_code(text, self.require_fence)
        if code is None or not code.strip():
            return Noted(self.wrong, "no_program")
        passed, late = zip(*await asyncio.gather(*(self._run(code, test, free) for test in tests)), strict=True)
        share = sum(passed) / len(passed) if self.score == "fraction" else float(all(passed))
        value = self.wrong + (self.correct - self.wrong) * share
        return Noted(value, "program_timeout", f"{sum(late)} of {len(late)} tests") if any(late) else value

    async def _run(self, code: str, test: Any, free: asyncio.Semaphore) -> tuple[bool, bool]:
        limits = self._limits()
        async with free:
            with tempfile.TemporaryDirectory(prefix="groupwise-", ignore_cleanup_errors=True) as name:
                folder = Path(name)
                (folder / "solution.py").write_text(code, encoding="utf-8", errors="replace")
                if isinstance(test, str):
                    return await (_examine if self.process == "apart" else _run_together)(folder, test, limits)
                done = await run_limited([*python(), "solution.py"], folder, limits, stdin=str(test.get("input", "")))
                return done.status == 0 and _lines(done.output) == _lines(str(test["output"])), done.timed_out


async def _examine(folder: Path, test: str, limits: Limits) -> tuple[bool, bool]:
    """Whether the program in a folder passes a test, and whether time ended it."""
    ends = socket.socketpair()
    with tempfile.TemporaryDirectory(prefix="groupwise-", ignore_cleanup_errors=True) as name:
        roles = zip(("program", "tester"), (folder, Path(name)), ("", test), ends, strict=True)
        program, tester = (
            asyncio.ensure_future(run_limited([*python(), *examination.command(role, end.fileno())], place, limits, stdin, end))
            for role, place, stdin, end in roles
        )
        try:
            done = await tester
            # Nobody asks the program any more, and one that means well ends.
            await asyncio.wait([program], timeout=_SECONDS_TO_END)
            return done.status == 0, done.timed_out or (program.done() and program.result().timed_out)
        finally:
            for task in (program, tester):
                task.cancel()
            await asyncio.gather(program, tester, return_exceptions=True)


async def _run_together(folder: Path, test: str, limits: Limits) -> tuple[bool, bool]:
    """As `_examine`, in the program's own process."""
    token = secrets.token_hex(16)
    done = await run_limited([*python(), "-c", _SHARED], folder, limits, stdin=f"{token}\n{test}")
    return done.status == 0 and done.output.splitlines()[-1:] == [token], done.timed_out


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _as_tests(tests: Any, column: str) -> list[Any]:
    tests = [tests] if isinstance(tests, str | Mapping) else list(tests or [])
    wrong = [test for test in tests if not isinstance(test, str) and not (isinstance(test, Mapping) and "output" in test)]
    if wrong or not tests:
        raise ValueError(f"column {column!r} holds {wrong[0] if wrong else tests!r}; write a list of Python texts or of tables {{input, output}}, at least one")
    return tests
