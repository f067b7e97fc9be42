"""The other end of a reward in a process of its own: reads the reward, then batches, a line of JSON each; answers a line each."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import json
import os
import queue
import signal
import sys
import threading
from typing import Any, TextIO

from pydantic import TypeAdapter

from groupwise.config import raised_at
from groupwise.reward.columns import arguments_for
from groupwise.reward.config import RewardConfig
from groupwise.reward.noted import Noted


def main() -> None:
    """Serves until standard input ends."""
    _die_with_parent()
    # What the reward prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin, lines), daemon=True).start()
    try:
        reward = TypeAdapter(RewardConfig).validate_json(lines.get())
        function = reward.open()
    except Exception as error:
        _answer(answers, {"error": _named(error)})
        return
    _answer(answers, {"ready": True})
    while True:
        batch = json.loads(lines.get())
        try:
            result: Any = function(**arguments_for(function, {**batch["columns"], "prompts": batch["prompts"], "completions": batch["completions"]}))
            if inspect.isawaitable(result):
                result = asyncio.run(_await(result))
            if hasattr(result, "tolist"):
                result = result.tolist()
            _answer(answers, {"values": [_plain(each) for each in result]})
        except BaseException as error:
            _answer(answers, {"error": _named(error)})


def _read(source: TextIO, lines: queue.SimpleQueue[str]) -> None:
    for line in source:
        lines.put(line)
    # The parent is gone or has closed the pipe; the reward may be in the middle of anything.
    os._exit(0)


def _die_with_parent() -> None:
    # Covers a reward that holds the interpreter, so that the reading thread never sees the pipe close. Linux only.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


async def _await(result: Any) -> Any:
    return await result


def _plain(entry: Any) -> Any:
    if isinstance(entry, Noted):
        return {"value": _plain(entry.value), "event": entry.event, "detail": entry.detail}
    if hasattr(entry, "item") and getattr(entry, "ndim", None) == 0:
        entry = entry.item()
    # Anything else is no reward; as a string it reaches the check that says so.
    return entry if entry is None or isinstance(entry, bool | int | float | str) else repr(entry)


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}{raised_at(error)}"


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
