"""The oracle: a search that looks at the answer, as no policy can; its accuracy bounds the possible gain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from groupwise.domain.selection.baseline.base import Choice
from groupwise.domain.selection.example import Query
from groupwise.domain.selection.measurement import Measures, Order, in_order


@final
class Oracle:
    """Beam search for the ordered choice with the highest `accuracy` (then `expected`) of each query by itself, one
    more pick at a time.

    Args:
        measures: with the task model.
        order: place of the first pick in the prompt.
    """

    name = "oracle beam"

    def __init__(self, measures: Measures, order: Order, width: int) -> None:
        self._measures, self._width = measures, width
        self._order: Order = order

    def choose(self, queries: Sequence[Query], shots: int) -> list[list[Choice]]:
        """Chooses the best 1 to `shots` demonstrations that the search meets for each query, `[Q][shots]`."""
        beams: list[list[Choice]] = [[()] for _ in queries]
        best: list[list[Choice]] = [[] for _ in queries]
        for _ in range(shots):
            rows = [
                (place, (*beam, example))
                for place, query in enumerate(queries)
                for beam in beams[place]
                for example in query.pool
                if example not in beam
            ]
            measurements = self._measures(
                [queries[place] for place, _ in rows], [in_order(choice, self._order) for _, choice in rows]
            )
            candidates: list[list[tuple[tuple[float, float], Choice]]] = [[] for _ in queries]
            for (place, choice), measurement in zip(rows, measurements, strict=True):
                candidates[place].append(((measurement.accuracy, measurement.expected), choice))
            for place, scored_choices in enumerate(candidates):
                scored_choices.sort(key=lambda scored: scored[0], reverse=True)
                beams[place] = [choice for _, choice in scored_choices[: self._width]]
                best[place].append(beams[place][0])
        return best
