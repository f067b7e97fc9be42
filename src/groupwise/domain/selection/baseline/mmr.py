"""Maximal marginal relevance: near to the query, and unlike what was picked already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from groupwise.domain.selection.baseline.base import Choice, prefixes, similarities
from groupwise.domain.selection.example import Query


@final
class Mmr:
    """Picks `argmax_i lambda cos(q, e_i) - (1 - lambda) max_{j picked} cos(e_i, e_j)`, one after the other.

    Args:
        relevance: `lambda`; 1 is the nearest neighbours.

    Example:
        >>> Mmr(0.7).name
        'MMR 0.7'

    Source: Carbonell and Goldstein, The Use of MMR, SIGIR 1998.
    """

    def __init__(self, relevance: float) -> None:
        self.relevance, self.name = relevance, f"MMR {relevance:g}"

    def choose(self, queries: Sequence[Query], shots: int) -> list[list[Choice]]:
        """Chooses 1 to `shots` demonstrations for each query, `[Q][shots]`, each choice one pick longer."""
        return prefixes([[query.pool[place] for place in self._picks(query, shots)] for query in queries], shots)

    def _picks(self, query: Query, shots: int) -> list[int]:
        query_similarity = similarities(query)
        pool = np.stack([example.embedding for example in query.pool])
        picks = [int(query_similarity.argmax())]
        picked_similarity = pool @ pool[picks[0]]
        for _ in range(shots - 1):
            relevance = self.relevance * query_similarity - (1 - self.relevance) * picked_similarity
            relevance[picks] = -np.inf
            picks.append(int(relevance.argmax()))
            picked_similarity = np.maximum(picked_similarity, pool @ pool[picks[-1]])
        return picks
