"""The protocol of the frozen model whose answers the demonstrations are to improve."""

from collections.abc import Sequence
from typing import Protocol

from groupwise_selection.example import Example, Query


class TaskModel(Protocol):
    """A model that answers queries after demonstrations."""

    def score(
        self, queries: Sequence[Query], demos: Sequence[Sequence[Example]], answers: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """Computes `log P(answer | query, demos)` in nats for each answer of each row.

        Args:
            queries: one a row; a query may appear in several rows.
            demos: demonstrations of each row, in the order of the prompt.
            answers: the answers to score in each row.
        """
        ...

    def generate(self, queries: Sequence[Query], demos: Sequence[Sequence[Example]]) -> list[str]:
        """Generates the model's answers, one a row.

        Args:
            queries: one a row.
            demos: demonstrations of each row, in the order of the prompt.
        """
        ...

    def fingerprint(self) -> str:
        """Returns a hash of weights and template, for caches."""
        ...
