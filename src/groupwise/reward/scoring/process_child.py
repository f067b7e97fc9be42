"""What the processes of rewards share: they end with the one that started them, and say plainly what came out."""

from __future__ import annotations

import contextlib
import ctypes
import signal
from typing import Any

from groupwise.config import raised_at
from groupwise.reward.noted import Noted

_LONGEST = 2000


def die_with_parent() -> None:
    """Has this process killed when the one that started it is gone, also while it holds the interpreter. Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def plain(entry: Any) -> Any:
    """A reward in JSON's types; what is no reward becomes a text, which the check of values refuses.

    Args:
        entry: what a reward returned for one member.

    Example:
        >>> plain(Noted(None, "judge_failed", "503")), plain(0.5), plain({1})
        ({'value': None, 'event': 'judge_failed', 'detail': '503'}, 0.5, '{1}')
    """
    if isinstance(entry, Noted):
        return {"value": plain(entry.value), "event": entry.event, "detail": entry.detail[:_LONGEST]}
    if hasattr(entry, "item") and getattr(entry, "ndim", None) == 0:
        entry = entry.item()
    # Anything else is no reward; as a string it reaches the check that says so.
    return entry if entry is None or isinstance(entry, bool | int | float | str) else repr(entry)


def named(error: BaseException) -> str:
    """An exception as one text: its type, what it says, where it was raised.

    Args:
        error: any.

    Example:
        >>> named(KeyError("colour"))
        "KeyError: 'colour'"
    """
    return f"{type(error).__name__}: {str(error)[:_LONGEST]}{raised_at(error)}"
