"""What every baseline promises."""

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
        """For each query, the choices of 1, 2, ... `shots` demonstrations.

        Args:
            queries: whose pools are chosen from.
            shots: most demonstrations.
        """
        ...


def prefixes(picks: Sequence[Sequence[Example]], shots: int) -> list[list[Choice]]:
    """Choices that grow pick by pick.

    Args:
        picks: of each query, at least `shots`.
        shots: most demonstrations.
    """
    return [[tuple(own[:size]) for size in range(1, shots + 1)] for own in picks]


def similarities(query: Query) -> np.ndarray:
    """Cosines of a query with its pool, fp32 `[N]`.

    Args:
        query: whose.
    """
    return np.stack([example.embedding for example in query.pool]) @ query.embedding
