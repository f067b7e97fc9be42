"""A value with a remark: what a reward returns to have something counted beside the number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Noted:
    """A reward and the name of what happened, counted in the table's events.

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
