"""A selector as it is used: every query chooses among the nearest examples of one store, not out of a pool that was
laid out for it.
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
    """The queries with the pools that the selector chooses from for them: an example that has a query's id is not in
    that query's pool.

    Args:
        selector: with its store.
        queries: any; their pools are replaced.
    """
    return [replace(query, pool=tuple(selector.nearest(query.embedding, without=(query.id,)))) for query in queries]


def selected_choices(selector: Selector, queries: Sequence[Query]) -> Choices:
    """What the selector picks for each query, out of its pool; distributions are left out.

    Args:
        selector: whose policy.
        queries: from `pooled`.
    """
    shots = selector.trained.shots
    picks = torch.full((len(queries), shots), NOTHING)
    for row, query in enumerate(queries):
        place = {example.id: number for number, example in enumerate(query.pool)}
        most = min(shots, len(place))
        chosen = selector.select(query.embedding, most, pool=list(place), order="first_pick_first")
        picks[row, : len(chosen)] = torch.tensor([place[example.id] for example in chosen])
    return Choices(picks, picks >= 0, torch.zeros(len(queries), shots, 0))


def accuracy(selector: Selector, queries: Sequence[Query], measures: Measures) -> list[list[float]]:
    """VQA accuracy of the selector as it is used, `[Q][shots]`: after one, two, ... demonstrations.

    Args:
        selector: with its store.
        queries: their pools are not looked at.
        measures: with the task model.
    """
    asked = pooled(selector, queries)
    rows = [
        [query.pool[place] for place in row if place >= 0]
        for query, row in zip(asked, selected_choices(selector, asked).picks.tolist(), strict=True)
    ]
    flat = [
        (query, in_order(row[:size], selector.trained.order))
        for query, row in zip(asked, rows, strict=True)
        for size in range(1, len(row) + 1)
    ]
    found = iter(measures([query for query, _ in flat], [demos for _, demos in flat]))
    shots = selector.trained.shots
    whole = [evaluate.per_query([next(found) if size < len(row) else None for size in range(shots)]) for row in rows]
    return [[row[f"accuracy_{size}"] for size in range(1, shots + 1)] for row in whole]
