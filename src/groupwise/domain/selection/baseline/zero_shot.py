"""The baseline without demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from groupwise.domain.selection.baseline.base import Choice
from groupwise.domain.selection.example import Query


@final
class ZeroShot:
    """The choice of no demonstrations: its accuracy is that of the task model by itself."""

    name = "zero-shot"

    def choose(self, queries: Sequence[Query], shots: int) -> list[list[Choice]]:
        """Chooses no demonstration for any number of shots."""
        return [[()] * shots for _ in queries]
