"""What the domain needs of the model whose answers the demonstrations are to improve. It is frozen: nothing here trains
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from groupwise.domain.selection.example import Example, Query


class TaskModel(Protocol):
    """A model that answers queries after demonstrations."""

    def score(
        self, queries: Sequence[Query], demos: Sequence[Sequence[Example]], answers: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """Nats, `log P(answer | query, demos)` for each listed answer of each query.

        Args:
            queries: one a row; the same query may stand in several.
            demos: of each row, in the order in which they are shown.
            answers: of each row, what to score.
        """
        ...

    def generate(self, queries: Sequence[Query], demos: Sequence[Sequence[Example]]) -> list[str]:
        """The answer that the model writes, one a row.

        Args:
            queries: one a row.
            demos: of each row, in the order in which they are shown.
        """
        ...

    def fingerprint(self) -> str:
        """A hash of weights and template, for caches."""
        ...
