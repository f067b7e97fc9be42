"""Rewards in processes of their own, which can be killed when they hang and started again: the trainer's end of the
line, and the main program at the other end, which reads the reward and then batches, one line of JSON each.
"""

import asyncio
import contextlib
import ctypes
import functools
import gc
import inspect
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, final

from pydantic import TypeAdapter

from groupwise.config import ConfigError, raised_at
from groupwise.reward.base import MemberLimits, Noted, Reward, RewardError
from groupwise.reward.completions import Text
from groupwise.reward.config import RewardConfig
from groupwise.reward.scoring.table import TRAINER_ARGUMENTS, RewardLog, TrainerState, arguments_for, scalar
from groupwise.reward.wall import machine_wall
from groupwise.reward.wall.machine_wall import Limits
from groupwise.reward.wall.readable_paths import python

_START = "import sys; sys.path[:0] = {paths!r}; from groupwise.reward.scoring.process import main; main()"
# Each member has limits of its own. This process only forks members and evaluates none, so it has none.
_UNLIMITED = Limits(cpu_seconds=None, memory_mb=None, wall_seconds=None)


@final
class ProcessReward:
    """Calls a configured reward in another process, by lines of JSON; columns must therefore be JSON-able.

    A shipped reward that is scored member by member evaluates what a policy wrote, so its process runs inside the wall
    of `groupwise.reward.wall`, and gets none of this process's variables.

    The process lives until `close`, a time limit (`cancel`), or the end of this one, and is started again at the next
    call.

    Example:
        >>> from groupwise.reward.texts.style import Length
        >>> with contextlib.closing(ProcessReward(Length(target=2))) as reward:
        ...     reward(["", ""], ["one two", "one"])
        [1.0, 0.5]
    """

    def __init__(self, reward: Reward) -> None:
        self.needs = reward.needs
        self._reward = reward
        self._process: subprocess.Popen[str] | None = None
        # The kernel ends a process with the thread that started it, and the thread of a call ends with the call.
        self._starter = ThreadPoolExecutor(1, "reward-starter")
        self._begin()

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[Any]:
        trainer: dict[str, Any] = {name: columns.pop(name) for name in TRAINER_ARGUMENTS if name in columns}
        reads = columns if self._reward.reads is None else self._reward.reads
        columns = {name: values for name, values in columns.items() if name in reads}
        state = asdict(trainer["trainer_state"]) if "trainer_state" in trainer else None
        try:
            line = json.dumps({"prompts": prompts, "completions": completions, "columns": columns, "state": state})
        except TypeError as error:
            raise RewardError(
                f'the columns cannot be sent to another process: {error}; write isolation = "thread"'
            ) from error
        answer = self._exchange(self._process or self._begin(), line)
        for name, values in answer.get("metrics", {}).items():
            for value in values:
                trainer["log_metric"](name, value)
        for column, entries in answer.get("extras", {}).items():
            trainer["log_extra"](column, entries)
        return [Noted(**value) if isinstance(value, dict) else value for value in answer["values"]]

    def cancel(self) -> None:
        """Kills the process, with whatever it started."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._reward.member_limits is not None:
            # When the wall ends, every process inside it ends.
            process.terminate()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        # The pipes are left to the garbage collector, because a thread may still be reading.
        process.wait()

    close = cancel

    def _begin(self) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
        pipes |= {"text": True, "encoding": "utf-8"}
        if self._reward.member_limits is None:
            # -P keeps the working directory from being searched before every library, as in the command itself.
            command = [sys.executable, "-P", "-c", _START.format(paths=[path for path in sys.path if path])]
            process = self._starter.submit(subprocess.Popen, command, **pipes).result()
        else:
            # Other folders of the import path than this package's and the installed ones may hold anything.
            own = os.path.dirname(os.path.dirname(os.path.abspath(sys.modules["groupwise"].__file__ or "")))
            paths = [path for path in sys.path if path == own or path.endswith("-packages")]
            command = [*python(), "-c", _START.format(paths=paths)]
            with machine_wall.wrap(command, _UNLIMITED, readable=paths) as (walled, passed):
                environment = {"PATH": os.environ.get("PATH", os.defpath)}
                pipes |= {"pass_fds": passed, "env": environment}
                process = self._starter.submit(subprocess.Popen, walled, **pipes).result()
        self._process = process
        self._exchange(process, self._reward.model_dump_json())
        return process

    def _exchange(self, process: subprocess.Popen[str], line: str) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        reply = ""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            reply = process.stdout.readline()
        if not reply:
            status = process.wait()
            if self._process is process:
                self._process = None
            how = f"signal {-status}" if status < 0 else f"status {status}"
            raise RuntimeError(f"the process of the reward ended with {how}")
        answer = json.loads(reply)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


# The other end.

_MEBIBYTE = 1 << 20
# Share of the batch's time for scoring; the remaining time is for sending the answers.
_SHARE_OF_BATCH = 0.8
_QUICK = 0.1
_MAX_CHARACTERS = 2000
_MAX_BYTES = 1 << 16


def main() -> None:
    """Serves until standard input ends."""
    # The kernel kills this process when its parent has ended, even while it holds the interpreter. Linux only.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    # The reward's output must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(work: Callable[[], dict[str, Any]]) -> bool:
        try:
            reply = work()
        except BaseException as error:
            reply = {"error": str(error) if isinstance(error, ConfigError | RewardError) else _error_text(error)}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()
        return "error" not in reply

    score: Callable[[Any], dict[str, Any]]

    def begin() -> dict[str, Any]:
        nonlocal score
        reward = TypeAdapter(RewardConfig).validate_json(sys.stdin.readline())
        function: Any = reward.open()
        if callable(getattr(function, "follow", None)):
            raise RewardError("a reward that remembers (follow, memory, recall) runs in a thread; drop isolation")
        limits = reward.member_limits
        score = functools.partial(_score_batch, function)
        if limits is not None:
            score = MemberScorer(function, limits, reward.timeout_seconds).score
        return {}

    if answer(begin):
        for line in sys.stdin:
            answer(lambda: score(json.loads(line)))  # noqa: B023


def _score_batch(function: Any, batch: Any) -> dict[str, Any]:
    log = RewardLog()
    trainer = {} if batch["state"] is None else log.arguments(TrainerState(**batch["state"]))
    given = {**batch["columns"], "prompts": batch["prompts"], "completions": batch["completions"], **trainer}
    result: Any = function(**arguments_for(function, given))
    if inspect.isawaitable(result):
        with asyncio.Runner() as runner:
            result = runner.get_loop().run_until_complete(result)
    values = [_json_value(value) for value in (result.tolist() if hasattr(result, "tolist") else result)]
    return {"values": values, "metrics": log.metrics, "extras": log.columns}


@final
class MemberScorer:
    """Scores batches in forks of this process, within the limits of a member. A fork whose member takes too long is
    killed, and a new fork continues with the next member. A fork can write no file and nothing to the terminal.

    Every member is tried with a tenth of its seconds first, and those that need more afterwards, so that slow ones do
    not use up the batch's time before the others had theirs. A member that still takes too long is wrong
    (`answer_too_slow`), as is one that ends its process or runs out of memory (`answer_too_large`); one that the
    batch's time did not reach is missing (`timeout`).

    Args:
        batch_seconds: for a batch, None without an end.
    """

    def __init__(self, function: Callable[..., Any], limits: MemberLimits, batch_seconds: float | None) -> None:
        self.function, self.limits, self.batch_seconds = function, limits, batch_seconds

    def score(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Scores a batch. Returns `values`, one a member, or the `error` that the reward raised for a member.

        Args:
            batch: `prompts`, `completions`, and the `columns` by name.
        """
        getattr(self.function, "prepare", lambda columns: None)(batch["columns"])
        # Existing objects are frozen, because the garbage collector would otherwise copy all of them into every fork.
        gc.freeze()
        end = math.inf if self.batch_seconds is None else time.monotonic() + _SHARE_OF_BATCH * self.batch_seconds
        late = f"the batch took longer than {self.batch_seconds} s before it"
        replies = [_noted(None, "timeout", late) for _ in batch["prompts"]]
        waiting = list(range(len(replies)))
        for seconds in (_QUICK * self.limits.seconds, self.limits.seconds):
            waiting = self._score_members(batch, waiting, seconds, end, replies)
        errors = [reply["error"] for reply in replies if "error" in reply]
        return {"error": errors[0]} if errors else {"values": [reply["value"] for reply in replies]}

    def _score_members(
        self, batch: Mapping[str, Any], waiting: list[int], seconds: float, end: float, replies: list[dict[str, Any]]
    ) -> list[int]:
        """Scores as many members as possible, in as many forks as necessary. Returns those to try again."""
        too_slow = _noted(self.limits.wrong, "answer_too_slow", f"longer than {self.limits.seconds:g} s; it is wrong")
        slow: list[int] = []
        while waiting and time.monotonic() < end:
            with self._fork(batch, waiting) as answers:
                alive = True
                while alive and waiting and (left := min(seconds, end - time.monotonic())) > 0:
                    member, *waiting = waiting
                    answers.settimeout(left)
                    try:
                        # If the fork has ended, the answer is empty.
                        answer = answers.recv(_MAX_BYTES)
                        replies[member], alive = json.loads(answer or self._large("its process ended")), bool(answer)
                    except TimeoutError:
                        slow.append(member)
                        replies[member], alive = too_slow, False
        return [*slow, *waiting]

    def _large(self, how: str) -> str:
        detail = f"{how}; it may take {self.limits.memory_mb} MiB"
        return json.dumps(_noted(self.limits.wrong, "answer_too_large", detail))

    @contextlib.contextmanager
    def _fork(self, batch: Mapping[str, Any], members: Sequence[int]) -> Iterator[socket.socket]:
        """Starts a fork that sends one packet a member, and kills it at the end."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = os.fork()
        if process == 0:
            try:
                self._confine()
                for member in members:
                    theirs.send(self._score_one(batch, member).encode())
            finally:
                os._exit(0)
        theirs.close()
        try:
            with ours:
                yield ours
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)

    def _confine(self) -> None:
        """Closes this process's input, terminal output and files, and limits its memory."""
        import resource

        null_device = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null_device, stream)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        try:
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        except OSError:
            # Behind Landlock there is no /proc.
            size = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + _MEBIBYTE) * 1024
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = size + self.limits.memory_mb * _MEBIBYTE
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))

    def _score_one(self, batch: Mapping[str, Any], member: int) -> str:
        columns = {**batch["columns"], "prompts": batch["prompts"], "completions": batch["completions"]}
        row = {name: values[member : member + 1] for name, values in columns.items()}
        try:
            (value,) = self.function(**arguments_for(self.function, row))
            return json.dumps({"value": _json_value(value)})
        except MemoryError:
            return self._large("it ran out of memory")
        except BaseException as error:
            return json.dumps({"error": _error_text(error)})


def _noted(value: float | None, event: str, detail: str) -> dict[str, Any]:
    return {"value": {"value": value, "event": event, "detail": detail}}


def _json_value(value: Any) -> Any:
    """Converts a reward to JSON's types; a value that is not a reward becomes a text, which is refused later."""
    if isinstance(value, Noted):
        return {"value": _json_value(value.value), "event": value.event, "detail": value.detail[:_MAX_CHARACTERS]}
    value = scalar(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)[:_MAX_CHARACTERS]


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:_MAX_CHARACTERS]}{raised_at(error)}"
