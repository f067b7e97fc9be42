"""What became of greedy choices: numbers by the number of demonstrations, and records that people can read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from groupwise.domain.selection.example import Query
from groupwise.domain.selection.measurement import Measured, Order, shown
from groupwise.domain.selection.policy.choices import Choices
from groupwise.reward import RewardTable

SELECTED, VALIDATION = "selected", "validation"
_MEASURED = ("accuracy", "correct", "info", "expected")


def metric_names(shots: int, rewards: Sequence[str], validation: bool) -> list[str]:
    """The names that `metrics` may give.

    Args:
        shots: most demonstrations.
        rewards: names.
        validation: whether validation queries are evaluated too.

    Example:
        >>> metric_names(2, ["vqa"], False)[:3]
        ['selected/accuracy', 'selected/accuracy_1', 'selected/accuracy_2']
    """
    each = ["accuracy", *(f"accuracy_{size}" for size in range(1, shots + 1)), *_MEASURED[1:], "shots"]
    own = [f"{SELECTED}/{name}" for name in [*each, "reward", *(name for name in rewards if name not in each)]]
    return own + ([f"{VALIDATION}/{name}" for name in each] if validation else [])


def per_query(measured: Sequence[Measured | None]) -> dict[str, float]:
    """What one query's choice came to: `accuracy` and the others as means over all numbers of demonstrations,
    `accuracy_1`, ... after so many picks.

    Where picking ended early, what stood then stays.

    Args:
        measured: after each pick.
    """
    held: list[Measured] = []
    for each in measured:
        held.append(each if each is not None else held[-1])
    found = {name: math.fsum(getattr(each, name) for each in held) / len(held) for name in _MEASURED}
    found |= {f"accuracy_{size}": each.accuracy for size, each in enumerate(held, 1)}
    return found | {"shots": float(sum(each is not None for each in measured))}


def metrics(mode: str, measured: Sequence[Sequence[Measured | None]], table: RewardTable | None) -> dict[str, float]:
    """Means over all queries, called `mode/...`.

    Args:
        mode: whose.
        measured: of each query.
        table: rewards of whole choices, where they were asked for.
    """
    rows = [per_query(each) for each in measured]
    names = ["accuracy", *(name for name in rows[0] if name.startswith("accuracy_")), *_MEASURED[1:], "shots"]
    found = {f"{mode}/{name}": math.fsum(row[name] for row in rows) / len(rows) for name in names}
    if table is not None:
        for name, values in (("reward", table.total()), *table.values.items()):
            present = [value for value in values if value is not None]
            if present and f"{mode}/{name}" not in found:
                found[f"{mode}/{name}"] = math.fsum(present) / len(present)
    return found


def described(query: Query, picks: Sequence[int], measured: Sequence[Measured | None], order: Order) -> dict[str, Any]:
    """One choice for people: the question, its demonstrations as they are shown with their answers, and what was
    measured.

    Args:
        query: whose.
        picks: in the order of picking.
        measured: after each pick.
        order: in which they are shown.
    """
    chosen = [place for place in picks if place >= 0]
    demos = shown(query.pool, chosen, order)
    last = next(each for each in reversed(measured) if each is not None)
    text = " | ".join(f"[{example.id}] {example.question} {example.answer}" for example in demos)
    return {
        "prompt": query.question,
        "key": query.id,
        "text": f"{text} | {query.question} -> {last.prediction}",
        "order": order,
        "demonstrations": [
            {"id": example.id, "question": example.question, "answer": example.answer} for example in demos
        ],
        "picks": [query.pool[place].id for place in chosen],
        "answers": list(query.answers),
        "measured": [None if each is None else asdict(each) for each in measured[: len(chosen)]],
    }


def records(
    queries: Sequence[Query],
    choices: Choices,
    measured: Sequence[Sequence[Measured | None]],
    table: RewardTable,
    order: Order,
    limit: int,
) -> list[Mapping[str, Any]]:
    """One record a query: key, mode and numbers of all (for paired comparisons), the demonstrations of the first
    `limit`.

    Args:
        queries: evaluated.
        choices: of each.
        measured: of each.
        table: rewards of each.
        order: in which picks are shown.
        limit: how many are written whole.
    """
    totals, picks = table.total(), choices.picks.tolist()
    found: list[Mapping[str, Any]] = []
    for place, query in enumerate(queries):
        numbers: dict[str, Any] = {name: values[place] for name, values in table.values.items()}
        record = {
            "key": query.id,
            "mode": SELECTED,
            "sample": 0,
            "rewards": numbers | per_query(measured[place]),
            "reward": totals[place],
        }
        found.append((described(query, picks[place], measured[place], order) if place < limit else {}) | record)
    return found
