"""Scoring member by member in a fork of this process. A fork whose member takes too long is killed, and a new fork goes
on with the next member.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from groupwise.config import raised_at
from groupwise.reward.base import MemberLimits, Noted
from groupwise.reward.scoring.table import arguments_for

_MEBIBYTE, _GIBIBYTE = 1 << 20, 1 << 30
_SIZES = Path("/proc/self/statm")
# Share of the batch's time for scoring; the remaining time is for sending the answers.
_SHARE_OF_BATCH = 0.8
_QUICK = 0.1
_LONGEST = 2000


@final
class _Raised(Exception):
    """The reward raised an exception for a member; the text names the exception and its place."""


@final
class Members:
    """Scores batches within the limits of a member. Nothing that runs in the fork outlives its batch, and it can write
    no file and nothing to the terminal.

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
        end = None if self.batch_seconds is None else time.monotonic() + _SHARE_OF_BATCH * self.batch_seconds
        values: dict[int, Any] = {}
        begun: set[int] = set()
        waiting: Sequence[int] = range(len(batch["prompts"]))
        try:
            for seconds in (_QUICK * self.limits.seconds, self.limits.seconds):
                waiting = self._tried(batch, waiting, seconds, end, values, begun)
        except _Raised as error:
            return {"error": str(error)}
        for member in waiting:
            values[member] = (
                self._too_slow()
                if member in begun
                else Noted(None, "timeout", f"the batch took longer than {self.batch_seconds:g} s before it")
            )
        return {"values": [plain(values[member]) for member in range(len(batch["prompts"]))]}

    def _tried(
        self,
        batch: Mapping[str, Any],
        waiting: Sequence[int],
        seconds: float,
        end: float | None,
        values: dict[int, Any],
        begun: set[int],
    ) -> list[int]:
        """Scores as many members as possible, in as many forks as necessary. Returns the members that were too slow,
        and those for which no time was left.
        """
        slow: list[int] = []
        while waiting:
            process, answers = self._fork(batch, waiting)
            num_done = 0
            try:
                while (
                    num_done < len(waiting)
                    and (left := seconds if end is None else min(seconds, end - time.monotonic())) > 0
                ):
                    answer = answers.line(left)
                    begun.add(waiting[num_done])
                    if answer is None:
                        slow.append(waiting[num_done])
                    else:
                        values[waiting[num_done]] = self._value(answer)
                    num_done += 1
                    if not answer:
                        break
            finally:
                answers.close()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
            waiting = waiting[num_done:]
            if end is not None and time.monotonic() >= end:
                return [*slow, *waiting]
        return slow

    def _value(self, answer: bytes) -> Any:
        """Decodes the value of a line; an empty line means that the process has ended."""
        reply = json.loads(answer) if answer else {"large": "its process ended"}
        if "error" in reply:
            raise _Raised(reply["error"])
        if "large" in reply:
            return Noted(
                self.limits.wrong, "answer_too_large", f"{reply['large']}; it may take {self.limits.memory_mb} MiB"
            )
        value = reply["value"]
        return Noted(**value) if isinstance(value, dict) else value

    def _too_slow(self) -> Noted:
        return Noted(self.limits.wrong, "answer_too_slow", f"longer than {self.limits.seconds:g} s; it counts as wrong")

    def _fork(self, batch: Mapping[str, Any], members: Sequence[int]) -> tuple[int, _Answers]:
        reader, writer = os.pipe()
        process = os.fork()
        if process:
            os.close(writer)
            return process, _Answers(reader)
        try:
            os.close(reader)
            self._confine()
            for member in members:
                _write(writer, self._scored(batch, member))
        finally:
            os._exit(0)

    def _confine(self) -> None:
        """Takes input, terminal output and files from this process, and limits its memory."""
        import resource

        null_device = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null_device, stream)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        try:
            size = int(_SIZES.read_text().split()[0]) * resource.getpagesize()
        except OSError:
            # There is no /proc behind Landlock.
            size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + _GIBIBYTE
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = size + self.limits.memory_mb * _MEBIBYTE
        resource.setrlimit(
            resource.RLIMIT_AS, (limit, hard) if hard == resource.RLIM_INFINITY else (min(limit, hard), hard)
        )

    def _scored(self, batch: Mapping[str, Any], member: int) -> dict[str, Any]:
        try:
            row = {name: values[member : member + 1] for name, values in batch["columns"].items()}
            arguments = {
                **row,
                "prompts": batch["prompts"][member : member + 1],
                "completions": batch["completions"][member : member + 1],
            }
            (value,) = self.function(**arguments_for(self.function, arguments))
            return {"value": plain(value)}
        except MemoryError:
            return {"large": "it ran out of memory"}
        except BaseException as error:
            return {"error": error_text(error)}


def _write(target: int, answer: Mapping[str, Any]) -> None:
    line = json.dumps(answer).encode() + b"\n"
    while line:
        line = line[os.write(target, line) :]


@final
class _Answers:
    """Lines of a pipe, each with a time limit."""

    def __init__(self, reader: int) -> None:
        self.reader, self._rest = reader, b""

    def line(self, seconds: float) -> bytes | None:
        """Reads the next line; empty where the writer is gone, None where the time limit has passed."""
        end = time.monotonic() + seconds
        while b"\n" not in self._rest:
            if not select.select([self.reader], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            if not (chunk := os.read(self.reader, 1 << 16)):
                return b""
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def close(self) -> None:
        os.close(self.reader)


def plain(value: Any) -> Any:
    """Converts a reward to JSON's types; a value that is no reward becomes a text, which the check of values refuses.

    Args:
        value: what a reward returned for one member.

    Example:
        >>> plain(Noted(None, "judge_failed", "503")), plain(0.5), plain({1})
        ({'value': None, 'event': 'judge_failed', 'detail': '503'}, 0.5, '{1}')
    """
    if isinstance(value, Noted):
        return {"value": plain(value.value), "event": value.event, "detail": value.detail[:_LONGEST]}
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    # All remaining values are no rewards; as a text they reach the check that refuses them.
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def error_text(error: BaseException) -> str:
    """Describes an exception in one text: its type, its message, and the place where it was raised.

    Example:
        >>> error_text(KeyError("colour"))
        "KeyError: 'colour'"
    """
    return f"{type(error).__name__}: {str(error)[:_LONGEST]}{raised_at(error)}"
