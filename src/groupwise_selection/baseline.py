"""The baselines that a learned policy must beat: other ways to choose demonstrations, one a file. None of them is
trained; the settings of some are chosen by the validation queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, final

import numpy as np

from groupwise.streams import Streams
from groupwise_selection.example import Example, Query
from groupwise_selection.measurement import Measures, Order, in_order

# The protocol of every baseline, with helpers that several share.

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


@final
class ZeroShot:
    """The choice of no demonstrations: its accuracy is that of the task model by itself."""

    name = "zero-shot"

    def choose(self, queries: Sequence[Query], shots: int) -> list[list[Choice]]:
        """Chooses no demonstration for any number of shots."""
        return [[()] * shots for _ in queries]
