"""The nearest neighbours (kNN), also known as RICES: the greedy choice of the policy before any training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from groupwise.domain.selection.baseline.base import Choice, prefixes, similarities
from groupwise.domain.selection.example import Query


@final
class Nearest:
    """Picks by cosine, nearest first; of equals, the first of the pool.

    Source: Liu et al. 2021, arXiv 2101.06804 (text); Yang et al. 2021, arXiv 2109.05014 (images: the name RICES is
    Flamingo's, arXiv 2204.14198).
    """

    name = "kNN"

    def choose(self, queries: Sequence[Query], shots: int) -> list[list[Choice]]:
        """Chooses the 1 to `shots` nearest examples of each query's pool, `[Q][shots]`."""
        orders = [np.argsort(-similarities(query), kind="stable")[:shots].tolist() for query in queries]
        return prefixes(
            [[query.pool[place] for place in order] for query, order in zip(queries, orders, strict=True)], shots
        )
