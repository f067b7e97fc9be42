"""The best fixed set: the same demonstrations for every query, found on training queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from groupwise.domain.selection.baseline.base import Choice
from groupwise.domain.selection.example import Example, Query
from groupwise.domain.selection.measurement import Measures, Order, in_order
from groupwise.streams import Streams


@final
class Fixed:
    """Grown greedily: each pick is the candidate that raises the mean `accuracy` (then `expected`) of the training
    queries most.

    Args:
        measures: with the task model.
        train: queries to choose by.
        order: in which picks are shown.
        num_candidates: examples that are tried, drawn from the training pools.
        seed: of that draw.
    """

    name = "best fixed set"

    def __init__(
        self, measures: Measures, train: Sequence[Query], order: Order, num_candidates: int = 32, seed: int = 0
    ) -> None:
        self._measures, self._train = measures, train
        self._order: Order = order
        known = list({example.id: example for query in train for example in query.pool}.values())
        places = Streams(seed).numpy("fixed").permutation(len(known))[:num_candidates].tolist()
        self._candidates = [known[place] for place in places]

    def choose(self, queries: Sequence[Query], shots: int) -> list[list[Choice]]:
        """See `Baseline.choose`; a query's own pool plays no part."""
        picked: tuple[Example, ...] = ()
        for _ in range(min(shots, len(self._candidates))):
            left = [each for each in self._candidates if each not in picked]
            values = [self._value((*picked, each)) for each in left]
            picked = (*picked, left[values.index(max(values))])
        choices = [picked[:size] for size in range(1, shots + 1)]
        return [list(choices) for _ in queries]

    def _value(self, choice: Choice) -> tuple[float, float]:
        found = self._measures(self._train, [in_order(choice, self._order)] * len(self._train))
        return sum(each.accuracy for each in found), sum(each.expected for each in found)
