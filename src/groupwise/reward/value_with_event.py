"""A reward value with an event: a reward returns it so that the event is counted beside the number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Noted:
    """A reward value and the name of an event, which the reward table counts.

    A reward may return this in place of a number; `value = None` is a missing reward with its reason.

    Args:
        value: the reward, or None where there is none.
        event: a short name to count by, such as `judge_unparsable`.
        detail: what a reader wants to see once.

    Example:
        >>> Noted(None, "judge_failed", "503 three times").event
        'judge_failed'
    """

    value: float | None
    event: str
    detail: str = ""
