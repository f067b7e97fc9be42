"""The protocol of every baseline, with helpers that several share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from groupwise.domain.selection.example import Example, Query

Choice = tuple[Example, ...]
"""Demonstrations in the order of picking."""


class Baseline(Protocol):
    """A way to choose demonstrations without a policy."""

    name: str

    def choose(self, queries: Sequence[Query], shots: int) -> list[list[Choice]]:
        """Chooses 1, 2, ... `shots` demonstrations for each query, `[Q][shots]` choices.

        Args:
            queries: their pools hold the examples to choose from.
            shots: highest number of demonstrations.
        """
        ...


def prefixes(picks: Sequence[Sequence[Example]], shots: int) -> list[list[Choice]]:
    """Lists the choices that grow pick by pick, `[Q][shots]`.

    Args:
        picks: examples of each query in the order of picking, at least `shots`.
        shots: highest number of demonstrations.
    """
    return [[tuple(examples[:size]) for size in range(1, shots + 1)] for examples in picks]


def similarities(query: Query) -> np.ndarray:
    """Computes the cosines of a query with the examples of its pool, fp32 `[N]`."""
    return np.stack([example.embedding for example in query.pool]) @ query.embedding
