"""A reward that always differs inside a group, so that every member learns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def differs(prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float]:
    """Returns reward 1 for every second member and 0 for the others."""
    return [float(place % 2) for place in range(len(completions))]
