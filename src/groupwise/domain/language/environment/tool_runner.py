"""Calls of tools with a deadline: what a tool raises, and a tool that hangs, become one line for the policy."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any, final

from groupwise.reward.scoring.worker import Job, Worker

_MOST_UNENDED = 16
"""Calls of a tool that may be under way past their deadlines; the tool is called no more until one of them ends."""


@final
class ToolRunner:
    """Calls functions in threads that are left behind where a call takes too long.

    Args:
        seconds: the deadline of one call.
        max_characters: longest text; the rest is cut off.

    Example:
        >>> runner = ToolRunner(seconds=5.0, max_characters=100)
        >>> runner.call("add", lambda: {"sum": 2 + 2}), runner.call("divide", lambda: 1 / 0)
        (('{"sum": 4}', True), ('error: ZeroDivisionError: division by zero', False))
    """

    def __init__(self, seconds: float, max_characters: int) -> None:
        self.seconds, self.max_characters = seconds, max_characters
        self._unended: dict[str, list[Job]] = {}

    def call(self, name: str, function: Callable[[], Any]) -> tuple[str, bool]:
        """Calls a function and awaits its result where it is awaitable.

        Args:
            name: of the tool.
            function: the call with its arguments.

        Returns:
            the result as a text, JSON where the function returned none, and true; or one line `error: ...` and false.
        """
        unended = [job for job in self._unended.get(name, ()) if not job.done.is_set()]
        if len(unended) >= _MOST_UNENDED:
            return self.error(f"{name} is busy with {len(unended)} earlier calls that have not ended"), False
        self._unended[name] = unended
        worker = Worker(f"tool-{name}")
        try:
            job = worker.start(lambda: _text_of(function()))
            if not job.ends_within(self.seconds):
                unended.append(job)
                return self.error(f"{name} took longer than {self.seconds:g} seconds"), False
        finally:
            worker.leave()
        if job.error is not None:
            return self.error(_reason(job.error)), False
        return _encodable(job.value[: self.max_characters]), True

    def error(self, reason: str) -> str:
        """Returns the one line that tells the policy why a call failed."""
        return _encodable(" ".join(f"error: {reason}".split())[: self.max_characters])


def _text_of(result: Any) -> Any:
    if inspect.isawaitable(result):
        return _awaited_text(result)
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)


async def _awaited_text(result: Awaitable[Any]) -> Any:
    return _text_of(await result)


def _encodable(text: str) -> str:
    """Replaces halves of surrogate pairs, which JSON can write and no tokenizer takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _reason(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # the text of a stranger's exception may raise too
        return type(error).__name__
