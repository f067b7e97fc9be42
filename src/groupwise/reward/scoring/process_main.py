"""The main program of a reward's own process: reads the reward and then batches, one line of JSON each, and answers
with one line each.
"""

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
from collections.abc import Callable
from typing import Any, TextIO

from pydantic import TypeAdapter

from groupwise.config import ConfigError
from groupwise.reward.base import RewardError
from groupwise.reward.config import RewardConfig
from groupwise.reward.scoring.members import Members, error_text, plain
from groupwise.reward.scoring.table import RewardLog, TrainerState, arguments_for


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
    if (limits := reward.member_limits) is not None:
        # No thread runs here, because a fork must not inherit a lock that no thread would release.
        members = Members(function, limits, reward.timeout_seconds)
        for line in sys.stdin:
            _serve(answers, members.score, line)
        return
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin, lines), daemon=True).start()
    while True:
        _serve(answers, lambda batch: _at_once(function, batch), lines.get())


def _serve(answers: TextIO, score: Callable[[Any], dict[str, Any]], line: str) -> None:
    try:
        answer = score(json.loads(line))
    except BaseException as error:
        answer = {"error": error_text(error)}
    _answer(answers, answer)


def _at_once(function: Any, batch: Any) -> dict[str, Any]:
    log = RewardLog()
    trainer = {} if batch["state"] is None else log.arguments(TrainerState(**batch["state"]))
    result: Any = function(
        **arguments_for(
            function,
            {**batch["columns"], "prompts": batch["prompts"], "completions": batch["completions"], **trainer},
        )
    )
    if inspect.isawaitable(result):
        result = asyncio.run(_await(result))
    values = [plain(value) for value in (result.tolist() if hasattr(result, "tolist") else result)]
    return {"values": values, "logged": log.record()}


def _read(source: TextIO, lines: queue.SimpleQueue[str]) -> None:
    for line in source:
        lines.put(line)
    # The parent has ended or has closed the pipe; the reward may be in the middle of a call.
    os._exit(0)


async def _await(result: Any) -> Any:
    return await result


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
