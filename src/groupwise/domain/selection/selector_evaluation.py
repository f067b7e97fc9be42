"""The evaluation of a selector as applications use it: every query chooses among the nearest examples of one store, not
out of a pool that was laid out for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from groupwise.domain.selection import evaluate
from groupwise.domain.selection.example import Query
from groupwise.domain.selection.measurement import Measures, in_order
from groupwise.domain.selection.policy.choices import NOTHING, Choices
from groupwise.domain.selection.selector import Selector


def pooled(selector: Selector, queries: Sequence[Query]) -> list[Query]:
    """Replaces the pools of queries by those that the selector chooses from, without a query's own solved copy (by its
    id or by its text).

    Args:
        selector: the policy with its store.
        queries: queries with embeddings; their pools are not read.
    """

    def others(query: Query) -> set[str]:
        return {query.id, *(example.id for example in selector.examples if query.is_solved_by(example))}

    return [replace(query, pool=tuple(selector.nearest(query.embedding, without=others(query)))) for query in queries]


def selected_choices(selector: Selector, queries: Sequence[Query]) -> Choices:
    """Picks for each query out of its pool by the selector; the distributions are empty.

    Args:
        selector: the policy with its store.
        queries: from `pooled`.
    """
    shots = selector.trained.shots
    picks = torch.full((len(queries), shots), NOTHING)
    for row, query in enumerate(queries):
        place = {example.id: number for number, example in enumerate(query.pool)}
        num_picks = min(shots, len(place))
        chosen = selector.select(query.embedding, num_picks, pool=list(place), order="first_pick_first")
        picks[row, : len(chosen)] = torch.tensor([place[example.id] for example in chosen])
    return Choices(picks, picks >= 0, torch.zeros(len(queries), shots, 0))


def accuracy(selector: Selector, queries: Sequence[Query], measures: Measures) -> list[list[float]]:
    """Measures the VQA accuracy of a selector in use, `[Q][shots]`: after one, two, ... demonstrations.

    Args:
        selector: the policy with its store.
        queries: queries with embeddings; their pools are not read.
        measures: measures choices with the task model.
    """
    pooled_queries = pooled(selector, queries)
    picked_rows = [
        [query.pool[place] for place in row if place >= 0]
        for query, row in zip(pooled_queries, selected_choices(selector, pooled_queries).picks.tolist(), strict=True)
    ]
    flat = [
        (query, in_order(row[:size], selector.trained.order))
        for query, row in zip(pooled_queries, picked_rows, strict=True)
        for size in range(1, len(row) + 1)
    ]
    measurements = iter(measures([query for query, _ in flat], [demos for _, demos in flat]))
    shots = selector.trained.shots
    query_rows = [
        evaluate.per_query([next(measurements) if size < len(row) else None for size in range(shots)])
        for row in picked_rows
    ]
    return [[means[f"accuracy_{size}"] for size in range(1, shots + 1)] for means in query_rows]
