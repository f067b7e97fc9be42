"""The baselines that a learned policy must beat: other ways to choose demonstrations. None of them is trained; the
settings of some are chosen by the validation queries.
"""

from collections.abc import Callable, Sequence

import numpy as np

from groupwise.streams import Streams
from groupwise_selection.example import Example, Query
from groupwise_selection.measurement import Measures, Order, in_order

Choice = tuple[Example, ...]
"""Demonstrations in the order of picking."""
Pick = Callable[[Query, int], Sequence[Example]]
"""A way to choose: takes a query and the number of demonstrations, and returns them in the order of picking."""

_LEAST = 1e-9


def prefixes(pick: Pick, queries: Sequence[Query], shots: int) -> list[list[Choice]]:
    """Lists the choices of each query that grow pick by pick, `[Q][shots]`."""
    picked = [pick(query, shots) for query in queries]
    return [[tuple(examples[:size]) for size in range(1, shots + 1)] for examples in picked]


def zero_shot(query: Query, shots: int) -> Sequence[Example]:
    """Picks nothing: the accuracy is that of the task model by itself."""
    return ()


def nearest(query: Query, shots: int) -> Sequence[Example]:
    """Picks by cosine, nearest first; of equals, the first of the pool.

    Source: Liu et al. 2021, arXiv 2101.06804 (text); Yang et al. 2021, arXiv 2109.05014 (images: the name RICES is
    Flamingo's, arXiv 2204.14198).
    """
    return [query.pool[place] for place in np.argsort(-(_pool(query) @ query.embedding), kind="stable")[:shots]]


def random(seed: int = 0) -> Pick:
    """Picks uniformly, without replacement; a query has the same picks every time."""
    streams = Streams(seed)
    return lambda query, shots: [
        query.pool[place] for place in streams.numpy("random", query.id).permutation(len(query.pool))[:shots]
    ]


def mmr(relevance: float) -> Pick:
    """Picks `argmax_i lambda cos(q, e_i) - (1 - lambda) max_{j picked} cos(e_i, e_j)`, one after the other.

    Args:
        relevance: `lambda`; 1 is the nearest neighbours.

    Source: Carbonell and Goldstein, The Use of MMR, SIGIR 1998.
    """

    def pick(query: Query, shots: int) -> Sequence[Example]:
        pool = _pool(query)
        similarity = pool @ query.embedding
        picks = [int(similarity.argmax())]
        picked_similarity = pool @ pool[picks[0]]
        for _ in range(shots - 1):
            value = relevance * similarity - (1 - relevance) * picked_similarity
            value[picks] = -np.inf
            picks.append(int(value.argmax()))
            picked_similarity = np.maximum(picked_similarity, pool @ pool[picks[-1]])
        return [query.pool[place] for place in picks]

    return pick


def dpp(quality: float) -> Pick:
    """Searches greedily for the most probable set under `L = diag(r) K diag(r)`, `r_i = exp(quality cos(q, e_i))`, `K`
    the cosines of the pool.

    Each pick adds the example whose row adds most to `log det L`; the first is the nearest neighbour.

    Args:
        quality: weight of nearness against diversity.

    Source: Kulesza and Taskar 2012, arXiv 1207.6083; the incremental search of Chen et al. 2018, arXiv 1709.05135,
    algorithm 1.
    """

    def pick(query: Query, shots: int) -> Sequence[Example]:
        pool = _pool(query).astype(np.float64)
        similarity = (_pool(query) @ query.embedding).astype(np.float64)
        # log det L splits: nearness adds 2 quality cos, the rest is the determinant of the cosines alone, so no
        # exponential is ever taken. `remaining` is the part of each example that the picks do not span.
        remaining, rows = (pool**2).sum(1), np.zeros((0, len(pool)))
        picks: list[int] = []
        for _ in range(shots):
            gain = 2 * quality * similarity + np.log(np.maximum(remaining, _LEAST))
            gain[picks] = -np.inf
            place = int(gain.argmax())
            picks.append(place)
            row = (pool @ pool[place] - rows.T @ rows[:, place]) / np.sqrt(max(remaining[place], _LEAST))
            rows, remaining = np.vstack([rows, row]), remaining - row**2
        return [query.pool[place] for place in picks]

    return pick


def fixed(
    measures: Measures, train: Sequence[Query], order: Order, shots: int, num_candidates: int = 32, seed: int = 0
) -> Pick:
    """Picks the same examples for every query, grown greedily: each is the candidate that raises the mean `accuracy`
    (then `expected`) of the training queries most.

    Args:
        measures: measures choices with the task model.
        train: queries whose accuracy decides.
        order: place of the first pick in the prompt.
        shots: highest number of demonstrations.
        num_candidates: number of examples that are tried, drawn from the training pools.
        seed: seed of that draw.
    """
    examples = list({example.id: example for query in train for example in query.pool}.values())
    places = Streams(seed).numpy("fixed").permutation(len(examples))[:num_candidates].tolist()
    candidates = [examples[place] for place in places]
    picked: Choice = ()

    def value(example: Example) -> tuple[float, float]:
        measured = measures(train, [in_order((*picked, example), order)] * len(train))
        return sum(each.accuracy for each in measured), sum(each.expected for each in measured)

    for _ in range(min(shots, len(candidates))):
        picked = (*picked, max((example for example in candidates if example not in picked), key=value))
    return lambda query, shots: picked


def oracle(measures: Measures, queries: Sequence[Query], shots: int, order: Order, width: int) -> list[list[Choice]]:
    """Searches by beams for the ordered choice with the highest `accuracy` (then `expected`) of each query by itself,
    one more pick at a time; `[Q][shots]`.

    Args:
        measures: measures choices with the task model.
        queries: queries with their pools.
        shots: highest number of demonstrations.
        order: place of the first pick in the prompt.
        width: number of beams.
    """
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
        measured = measures([queries[place] for place, _ in rows], [in_order(choice, order) for _, choice in rows])
        candidates: list[list[tuple[float, float, Choice]]] = [[] for _ in queries]
        for (place, choice), measurement in zip(rows, measured, strict=True):
            candidates[place].append((measurement.accuracy, measurement.expected, choice))
        for place, scored in enumerate(candidates):
            scored.sort(key=lambda candidate: candidate[:2], reverse=True)
            beams[place] = [choice for *_, choice in scored[:width]]
            best[place].append(beams[place][0])
    return best


def _pool(query: Query) -> np.ndarray:
    return np.stack([example.embedding for example in query.pool])
