"""A determinantal point process: sets of near examples that span much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from groupwise.domain.selection.baseline.base import Choice, prefixes, similarities
from groupwise.domain.selection.example import Query

_LEAST = 1e-9


@final
class Dpp:
    """Greedy search for the most probable set under `L = diag(r) K diag(r)`, `r_i = exp(quality cos(q, e_i))`, `K` the
    cosines of the pool.

    Each pick adds the example whose row adds most to `log det L`; the first is the nearest neighbour.

    Args:
        quality: weight of nearness against diversity.

    Example:
        >>> Dpp(5.0).name
        'DPP 5'

    Source: Kulesza and Taskar 2012, arXiv 1207.6083; the incremental search of Chen et al. 2018, arXiv 1709.05135,
    algorithm 1.
    """

    def __init__(self, quality: float) -> None:
        self.quality, self.name = quality, f"DPP {quality:g}"

    def choose(self, queries: Sequence[Query], shots: int) -> list[list[Choice]]:
        """Chooses 1 to `shots` demonstrations for each query, `[Q][shots]`, each choice one pick longer."""
        return prefixes([[query.pool[place] for place in self._picks(query, shots)] for query in queries], shots)

    def _picks(self, query: Query, shots: int) -> list[int]:
        query_similarity = similarities(query).astype(np.float64)
        pool = np.stack([example.embedding for example in query.pool]).astype(np.float64)
        # log det L splits: nearness adds 2 quality cos, the rest is the determinant of the cosines alone, so no
        # exponential is ever taken. `remaining` is the part of each example that the picks do not span.
        remaining = (pool**2).sum(1)
        rows = np.zeros((0, len(pool)))
        picks: list[int] = []
        for _ in range(shots):
            gain = 2 * self.quality * query_similarity + np.log(np.maximum(remaining, _LEAST))
            gain[picks] = -np.inf
            picks.append(int(gain.argmax()))
            pick = picks[-1]
            row = (pool @ pool[pick] - rows.T @ rows[:, pick]) / np.sqrt(max(remaining[pick], _LEAST))
            rows, remaining = np.vstack([rows, row]), remaining - row**2
        return picks
