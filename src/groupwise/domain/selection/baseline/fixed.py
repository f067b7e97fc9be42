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
        train: queries whose accuracy decides.
        order: place of the first pick in the prompt.
        num_candidates: number of examples that are tried, drawn from the training pools.
        seed: seed of that draw.
    """

    name = "best fixed set"

    def __init__(
        self, measures: Measures, train: Sequence[Query], order: Order, num_candidates: int = 32, seed: int = 0
    ) -> None:
        self._measures, self._train = measures, train
        self._order: Order = order
        examples = list({example.id: example for query in train for example in query.pool}.values())
        places = Streams(seed).numpy("fixed").permutation(len(examples))[:num_candidates].tolist()
        self._candidates = [examples[place] for place in places]

    def choose(self, queries: Sequence[Query], shots: int) -> list[list[Choice]]:
        """Chooses the same 1 to `shots` demonstrations for every query, `[Q][shots]`, without regard to its pool."""
        picked: tuple[Example, ...] = ()
        for _ in range(min(shots, len(self._candidates))):
            candidates = [example for example in self._candidates if example not in picked]
            values = [self._value((*picked, example)) for example in candidates]
            picked = (*picked, candidates[values.index(max(values))])
        choices = [picked[:size] for size in range(1, shots + 1)]
        return [list(choices) for _ in queries]

    def _value(self, choice: Choice) -> tuple[float, float]:
        measurements = self._measures(self._train, [in_order(choice, self._order)] * len(self._train))
        return sum(measurement.accuracy for measurement in measurements), sum(
            measurement.expected for measurement in measurements
        )
