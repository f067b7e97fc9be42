"""The oracle: a search that looks at the answer. No policy can do that; it says how much there is to gain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from groupwise.domain.selection.baseline.base import Choice
from groupwise.domain.selection.example import Query
from groupwise.domain.selection.measurement import Measures, Order, in_order


@final
class Oracle:
    """Beam search for the ordered choice with the highest `accuracy` (then `expected`) of each query itself, one depth
    after the other.

    Args:
        measures: with the task model.
        order: in which picks are shown.
        width: beams that are kept.
    """

    name = "oracle beam"

    def __init__(self, measures: Measures, order: Order, width: int) -> None:
        self._measures, self._width = measures, width
        self._order: Order = order

    def choose(self, queries: Sequence[Query], shots: int) -> list[list[Choice]]:
        """See `Baseline.choose`."""
        beams: list[list[Choice]] = [[()] for _ in queries]
        best: list[list[Choice]] = [[] for _ in queries]
        for _ in range(shots):
            rows = [
                (place, (*beam, each))
                for place, query in enumerate(queries)
                for beam in beams[place]
                for each in query.pool
                if each not in beam
            ]
            found = self._measures(
                [queries[place] for place, _ in rows], [in_order(choice, self._order) for _, choice in rows]
            )
            grown: list[list[tuple[tuple[float, float], Choice]]] = [[] for _ in queries]
            for (place, choice), each in zip(rows, found, strict=True):
                grown[place].append(((each.accuracy, each.expected), choice))
            for place, every in enumerate(grown):
                every.sort(key=lambda item: item[0], reverse=True)
                beams[place] = [choice for _, choice in every[: self._width]]
                best[place].append(beams[place][0])
        return best
