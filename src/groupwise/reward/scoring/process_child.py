"""Functions that the processes of rewards share: they end with their parent process, and report values and errors as
plain data.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
from typing import Any

from groupwise.config import raised_at
from groupwise.reward.base import Noted

_LONGEST = 2000


def die_with_parent() -> None:
    """Makes the kernel kill this process when its parent has ended, even while it holds the interpreter. Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


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
