"""Unit tests: the program of a completion is run against tests, under limits."""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.config.errors import Mebibytes, Parallel, PerStep
from groupwise.processor import num_processors
from groupwise.reward.base import Noted, Reward, RewardError, Value
from groupwise.reward.completions import Text, completion_text
from groupwise.reward.programs import isolated_test
from groupwise.reward.programs.sandbox import Finished, Limits, python, run_limited
from groupwise.reward.scoring.threads import Job
from groupwise.reward.wall import machine_wall

_FENCE = re.compile(r"^```[ \t]*([\w+-]*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SECONDS_TO_END = 0.5

# A program that exits before the test runs would pass with status 0, so a token proves that the test ran. Token and
# test are sent on standard input, which is closed before the program runs, so that the program finds neither in a file.
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
    """Returns the program in a completion: its last fenced Python block, or the whole text where it has no fence.

    Args:
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
    or a table `{input, output}`: the program is run with this input and must print this output (spaces at line ends
    apart).

    Every test runs the program in a process and folder of its own, inside the wall that
    `groupwise.reward.wall` builds: it reads the system's and Python's files and nothing else, writes only
    where nothing is kept, has no network, and ends with all that it started. Whatever happens while it is examined is
    its own wrong answer. No program gives `wrong`.

    Python text runs in a second process, which the program does not reach: results come over as plain data (built-in
    kinds, dates, decimals, numpy arrays; an object derived from a built-in kind as that kind), and what is expected
    never goes there. An object that the test makes from a class of the program, which it calls by a capital name, is
    called, read and asked there. Any other object of the program's own has data to read and to iterate over, and
    neither truth nor methods; `in` compares what it iterates over. Beside plain data no object is equal to anything or
    takes part in arithmetic. The program is given plain data, functions and iterators; it does not see the test's
    names, and a test imports what it compares with. The program's names are there as they are, and as the module
    `solution`. A list read from them is a copy: only the program changes its own. `unittest.main()` ends the process,
    which no test that passes does; write the asserts, or run the suite. Tests that need more than that, which tests of
    classes may, take `process = "shared"`.

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
    """The process of a test that is Python text: a process that the program cannot reach, or the program's own. In the
    shared process a test may do all that Python can, and so may the program: an object that is equal to everything
    passes.
    """
    require_fence: bool = False
    """A completion without a fenced block has no program."""
    cpu_seconds: Annotated[float, Field(gt=0)] = 5.0
    """Processor time of one program, with all that it starts."""
    memory_mb: Mebibytes = 1024
    """Memory of one program, with all that it starts."""
    wall_seconds: Annotated[float, Field(gt=0)] = 10.0
    num_processes: PerStep = 64
    """Processes and threads of one program at a time. The limit stops a program that starts itself again and again."""
    disk_mb: PerStep = 64
    """Everything that one program writes: its folder, temporary files and shared memory."""
    network: Literal["deny", "deny_if_possible", "allow"] = "deny_if_possible"
    """`deny` is an error where the system cannot deny it; `deny_if_possible` then prints a remark when a run starts."""
    wall: Literal["required", "best"] = "best"
    """`required` is an error where the machine allows no wall (namespaces, or Landlock and a filter of system calls).
    `best` takes what there is and reports what is missing when a run starts.
    """
    readable: tuple[str, ...] = ()
    """Folders and files that programs and tests may read, in addition to the system's and Python's: data, packages
    installed by a link.
    """
    num_parallel: Parallel | None = None
    """Programs at once; where absent, one per processor core."""
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

    @property
    def remarks(self) -> list[str]:
        """The parts of the wall that this machine does not allow."""
        missing = machine_wall.best_wall().missing
        return [missing] if missing else []

    def open(self) -> UnitTests:
        """Returns the function that scores; refuses a machine on which no program can run, or none inside the required
        wall.
        """
        wall = machine_wall.best_wall()
        if self.wall == "required" and not wall.is_safe:
            raise RewardError(
                f'unit_tests: wall = "required", and this machine refuses it ({wall.refused}); allow user namespaces'
                " (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns = 0, a container's"
                ' seccomp profile) or run Linux 5.13 with Landlock, or write wall = "best" for programs that you trust'
            )
        if self.network == "deny" and not wall.denies_network:
            raise RewardError(
                f'unit_tests: this system can take the network from no program ({wall.refused}), so network = "deny"'
                ' cannot be kept; run in a container without network and write "allow"'
            )
        # The trial runs in a thread, because the caller may already have an event loop, as a notebook does.
        tried = Job("unit_tests", lambda: self._limited([*python(), "-c", "pass"]))
        tried.ends_within(None)
        if tried.error is not None or tried.value.status != 0:
            raise RewardError(
                f"unit_tests: an empty program ends with {tried.error or tried.value} under memory_mb ="
                f" {self.memory_mb}, cpu_seconds = {self.cpu_seconds:g}; raise memory_mb, or lower both to what this"
                " user may have (ulimit -a)"
            )
        return self

    async def __call__(
        self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]
    ) -> list[Value]:
        free = asyncio.Semaphore(self.num_parallel or num_processors())
        members = [
            (completion_text(completion), None if tests is None else _as_tests(tests, self.column))
            for completion, tests in zip(completions, columns[self.column], strict=True)
        ]
        return list(await asyncio.gather(*(self._member(text, tests, free) for text, tests in members)))

    async def _member(self, text: str, tests: Sequence[Any] | None, free: asyncio.Semaphore) -> Value:
        if tests is None:
            return None
        code = python_code(text, self.require_fence)
        if code is None or not code.strip():
            return Noted(self.wrong, "no_program")
        examined = await asyncio.gather(*(self._run(code, test, free) for test in tests))
        passed, late, wrong = zip(*examined, strict=True)
        share = sum(passed) / len(examined) if self.score == "fraction" else float(all(passed))
        value = self.wrong + (self.correct - self.wrong) * share
        if any(wrong):
            return Noted(value, "program_not_examined", next(filter(None, wrong)))
        return Noted(value, "program_timeout", f"{sum(late)} of {len(examined)} tests") if any(late) else value

    async def _run(self, code: str, test: Any, free: asyncio.Semaphore) -> tuple[bool, bool, str]:
        """Returns whether a test passed, whether a time limit ended it, and the error of the examination itself."""
        async with free:
            try:
                return *await self._passes(code, test), ""
            except Exception as error:
                # An error that one program causes belongs to that program: it must not end a run, which would meet the
                # same program again when it is resumed.
                return False, False, f"{type(error).__name__}: {error}"

    async def _passes(self, code: str, test: Any) -> tuple[bool, bool]:
        if isinstance(test, str):
            return await (self._apart if self.process == "apart" else self._shared)(code, test)
        done = await self._limited([*python(), "solution.py"], code, str(test.get("input", "")))
        return done.status == 0 and _lines(done.output) == _lines(str(test["output"])), done.timed_out

    async def _apart(self, code: str, test: str) -> tuple[bool, bool]:
        ends = socket.socketpair()
        roles = zip(("program", "tester"), (code, None), ("", test), ends, strict=True)
        program, tester = (
            asyncio.ensure_future(
                self._limited([*python(), *isolated_test.command(role, end.fileno())], text, stdin, end)
            )
            for role, text, stdin, end in roles
        )
        try:
            done = await tester
            # The test no longer asks the program, and a well-behaved program ends now.
            await asyncio.wait([program], timeout=_SECONDS_TO_END)
            return done.status == 0, done.timed_out or (
                program.done() and program.exception() is None and program.result().timed_out
            )
        finally:
            for task in (program, tester):
                task.cancel()
            await asyncio.gather(program, tester, return_exceptions=True)

    async def _shared(self, code: str, test: str) -> tuple[bool, bool]:
        token = secrets.token_hex(16)
        done = await self._limited([*python(), "-c", _SHARED], code, f"{token}\n{test}")
        return done.status == 0 and done.output.splitlines()[-1:] == [token], done.timed_out

    async def _limited(
        self, command: list[str], code: str | None = None, stdin: str = "", line: socket.socket | None = None
    ) -> Finished:
        limits = Limits(
            self.cpu_seconds,
            self.memory_mb,
            self.wall_seconds,
            disk_mb=self.disk_mb,
            network=self.network == "allow",
            num_processes=self.num_processes,
        )
        done = await run_limited(
            command, limits, {} if code is None else {"solution.py": code}, stdin, line, self.readable
        )
        if done.refused:
            raise RuntimeError(done.refused)
        return done


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _as_tests(tests: Any, column: str) -> list[Any]:
    tests = [tests] if isinstance(tests, str | Mapping) else list(tests or [])
    wrong = [
        test for test in tests if not isinstance(test, str) and not (isinstance(test, Mapping) and "output" in test)
    ]
    if wrong or not tests:
        raise ValueError(
            f"column {column!r} holds {wrong[0] if wrong else tests!r}; write a list of Python texts or of tables"
            " {input, output}, at least one"
        )
    return tests
