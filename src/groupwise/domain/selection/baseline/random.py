"""Random examples of the pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from groupwise.domain.selection.baseline.base import Choice, prefixes
from groupwise.domain.selection.example import Query
from groupwise.streams import Streams


@final
class Random:
    """Picks uniformly at random, without replacement; a query has the same picks every time.

    Args:
        seed: seed of the draws.
    """

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self._streams = Streams(seed)

    def choose(self, queries: Sequence[Query], shots: int) -> list[list[Choice]]:
        """Chooses 1 to `shots` random examples of each query's pool, `[Q][shots]`, each choice one pick longer."""
        orders = [
            self._streams.numpy("random", query.id).permutation(len(query.pool))[:shots].tolist() for query in queries
        ]
        return prefixes(
            [[query.pool[place] for place in order] for query, order in zip(queries, orders, strict=True)], shots
        )
