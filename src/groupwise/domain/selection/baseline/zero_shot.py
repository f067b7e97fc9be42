"""No demonstrations at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from groupwise.domain.selection.baseline.base import Choice
from groupwise.domain.selection.example import Query


@final
class ZeroShot:
    """What the task model knows by itself."""

    name = "zero-shot"

    def choose(self, queries: Sequence[Query], shots: int) -> list[list[Choice]]:
        """Nothing, whatever is asked for."""
        return [[()] * shots for _ in queries]
