"""The main program of a reward's own process: reads the reward and then batches, one line of JSON each, and answers
with one line each.
"""

from __future__ import annotations

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
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, final

from pydantic import TypeAdapter

from groupwise.config import ConfigError, raised_at
from groupwise.reward.base import MemberLimits, Noted, RewardError
from groupwise.reward.config import RewardConfig
from groupwise.reward.scoring.table import RewardLog, TrainerState, arguments_for

_MEBIBYTE, _GIBIBYTE = 1 << 20, 1 << 30
_SIZES = Path("/proc/self/statm")
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
    try:
        reward = TypeAdapter(RewardConfig).validate_json(sys.stdin.readline())
        function = reward.open()
        if callable(getattr(function, "follow", None)):
            raise RewardError("a reward that remembers (follow, memory, recall) runs in a thread; drop isolation")
    except Exception as error:
        _answer(answers, {"error": str(error) if isinstance(error, ConfigError | RewardError) else error_text(error)})
        return
    _answer(answers, {"ready": True})
    limits = reward.member_limits
    score = (
        functools.partial(_score_batch, function)
        if limits is None
        else MemberScorer(function, limits, reward.timeout_seconds).score
    )
    for line in sys.stdin:
        try:
            answer = score(json.loads(line))
        except BaseException as error:
            answer = {"error": error_text(error)}
        _answer(answers, answer)


def _score_batch(function: Any, batch: Any) -> dict[str, Any]:
    log = RewardLog()
    trainer = {} if batch["state"] is None else log.arguments(TrainerState(**batch["state"]))
    given = {**batch["columns"], "prompts": batch["prompts"], "completions": batch["completions"], **trainer}
    result: Any = function(**arguments_for(function, given))
    if inspect.isawaitable(result):
        result = asyncio.run(_await(result))
    values = [_json_value(value) for value in (result.tolist() if hasattr(result, "tolist") else result)]
    return {"values": values, "logged": {"metrics": log.metrics, "columns": log.columns}}


async def _await(result: Any) -> Any:
    return await result


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


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
                        answer = answers.recv(_MAX_BYTES)
                        replies[member], alive = self._reply(answer), bool(answer)
                    except TimeoutError:
                        slow.append(member)
                        replies[member], alive = too_slow, False
        return [*slow, *waiting]

    def _reply(self, answer: bytes) -> dict[str, Any]:
        """Decodes the answer for a member. If the fork has ended, the answer is empty."""
        reply = json.loads(answer) if answer else {"large": "its process ended"}
        if "large" not in reply:
            return reply
        detail = f"{reply['large']}; it may take {self.limits.memory_mb} MiB"
        return _noted(self.limits.wrong, "answer_too_large", detail)

    @contextlib.contextmanager
    def _fork(self, batch: Mapping[str, Any], members: Sequence[int]) -> Iterator[socket.socket]:
        """Starts a fork that sends one packet a member, and kills it at the end."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = os.fork()
        if process == 0:
            try:
                self._confine()
                for member in members:
                    theirs.send(json.dumps(self._score_one(batch, member)).encode())
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
            size = int(_SIZES.read_text().split()[0]) * resource.getpagesize()
        except OSError:
            # Behind Landlock there is no /proc.
            size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + _GIBIBYTE
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = size + self.limits.memory_mb * _MEBIBYTE
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))

    def _score_one(self, batch: Mapping[str, Any], member: int) -> dict[str, Any]:
        columns = {**batch["columns"], "prompts": batch["prompts"], "completions": batch["completions"]}
        row = {name: values[member : member + 1] for name, values in columns.items()}
        try:
            (value,) = self.function(**arguments_for(self.function, row))
            return {"value": _json_value(value)}
        except MemoryError:
            return {"large": "it ran out of memory"}
        except BaseException as error:
            return {"error": error_text(error)}


def _noted(value: float | None, event: str, detail: str) -> dict[str, Any]:
    return {"value": {"value": value, "event": event, "detail": detail}}


def _json_value(value: Any) -> Any:
    """Converts a reward to JSON's types; a value that is not a reward becomes a text, which is refused later."""
    if isinstance(value, Noted):
        return {"value": _json_value(value.value), "event": value.event, "detail": value.detail[:_MAX_CHARACTERS]}
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    return value if value is None or isinstance(value, bool | int | float) else str(value)[:_MAX_CHARACTERS]


def error_text(error: BaseException) -> str:
    """Describes an exception in one text: its type, its message, and the place where it was raised.

    Example:
        >>> error_text(KeyError("colour"))
        "KeyError: 'colour'"
    """
    return f"{type(error).__name__}: {str(error)[:_MAX_CHARACTERS]}{raised_at(error)}"


if __name__ == "__main__":
    main()
