"""Deadlines for the asynchronous rewards of TRL's trainer, which waits for them without an end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

SECONDS: Final = 600.0
"""The deadline of a reward without an attribute `timeout_seconds`; one batch of it."""


def with_deadline(reward: Any, name: str) -> Any:
    """Gives an asynchronous reward the deadline in its attribute `timeout_seconds`, 600 seconds without one.

    Args:
        reward: a reward as TRL's trainer holds it; a model or a function that is not asynchronous is returned as it is.
        name: the reward's name in the error.

    Returns:
        the reward, whose call raises `TimeoutError` with its name after the deadline; `timeout_seconds = None` waits
        without an end.

    Example:
        >>> async def judge(completions, **columns):
        ...     await asyncio.sleep(60)
        >>> judge.timeout_seconds = 0.01
        >>> asyncio.run(with_deadline(judge, "judge")(completions=["a"]))
        Traceback (most recent call last):
        ...
        TimeoutError: the reward 'judge' gave no answer within 0.01 s; write judge.timeout_seconds = 0.1 to wait longer
    """
    seconds: float | None = getattr(reward, "timeout_seconds", SECONDS)
    if seconds is None or not _is_asynchronous(reward):
        return reward

    @wraps(reward)
    async def limited(*arguments: Any, **columns: Any) -> Any:
        try:
            async with asyncio.timeout(seconds) as limit:
                return await reward(*arguments, **columns)
        except TimeoutError:
            if not limit.expired():
                raise
            sentence = (
                f"the reward {name!r} gave no answer within {seconds:g} s; write {name}.timeout_seconds ="
                f" {10 * seconds:g} to wait longer"
            )
            raise TimeoutError(sentence) from None

    return limited


def _is_asynchronous(reward: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(reward) or inspect.iscoroutinefunction(getattr(reward, "__call__", None))  # noqa: B004
