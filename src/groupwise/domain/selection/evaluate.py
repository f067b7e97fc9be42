"""Results of greedy choices: metrics by the number of demonstrations, and records for people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from groupwise.domain.selection.example import Query
from groupwise.domain.selection.measurement import Measurement, Order, picked_examples
from groupwise.domain.selection.policy.choices import Choices
from groupwise.reward import RewardTable

SELECTED, VALIDATION = "selected", "validation"
_MEASURED = ("accuracy", "correct", "info", "expected")


def metric_names(shots: int, rewards: Sequence[str], validation: bool) -> list[str]:
    """Lists the names that `metrics` may return.

    Args:
        shots: highest number of demonstrations.
        rewards: names of the rewards.
        validation: true where validation queries are evaluated too.

    Example:
        >>> metric_names(2, ["vqa"], False)[:3]
        ['selected/accuracy', 'selected/accuracy_1', 'selected/accuracy_2']
    """
    measured_names = ["accuracy", *(f"accuracy_{size}" for size in range(1, shots + 1)), *_MEASURED[1:], "shots"]
    selected_names = [
        f"{SELECTED}/{name}"
        for name in [*measured_names, "reward", *(name for name in rewards if name not in measured_names)]
    ]
    return selected_names + ([f"{VALIDATION}/{name}" for name in measured_names] if validation else [])


def per_query(measurements: Sequence[Measurement | None]) -> dict[str, float]:
    """Computes the results of one query: means of the measured fields over all numbers of demonstrations, and
    `accuracy_1`, `accuracy_2`, ... after so many picks.

    Where picking ended early, the last measurement counts for the remaining numbers of demonstrations.

    Args:
        measurements: the measurement after each pick, `None` after the end.
    """
    filled: list[Measurement] = []
    for measurement in measurements:
        filled.append(measurement if measurement is not None else filled[-1])
    means = {name: math.fsum(getattr(measurement, name) for measurement in filled) / len(filled) for name in _MEASURED}
    means |= {f"accuracy_{size}": measurement.accuracy for size, measurement in enumerate(filled, 1)}
    return means | {"shots": float(sum(measurement is not None for measurement in measurements))}


def metrics(
    mode: str, measurements: Sequence[Sequence[Measurement | None]], table: RewardTable | None
) -> dict[str, float]:
    """Computes means over all queries, with names `mode/...`.

    Args:
        mode: `selected`, `validation` or `exported`.
        measurements: the measurements of each query, one a pick.
        table: rewards of whole choices; `None` leaves them out.
    """
    rows = [per_query(query_measurements) for query_measurements in measurements]
    names = ["accuracy", *(name for name in rows[0] if name.startswith("accuracy_")), *_MEASURED[1:], "shots"]
    means = {f"{mode}/{name}": math.fsum(row[name] for row in rows) / len(rows) for name in names}
    if table is not None:
        for name, values in (("reward", table.total("sum")), *table.values.items()):
            present = [value for value in values if value is not None]
            if present and f"{mode}/{name}" not in means:
                means[f"{mode}/{name}"] = math.fsum(present) / len(present)
    return means


def described(
    query: Query, picks: Sequence[int], measurements: Sequence[Measurement | None], order: Order
) -> dict[str, Any]:
    """Describes one choice for people: the question, its demonstrations in the order of the prompt with their answers,
    and the measurements.

    Args:
        query: the query of the choice.
        picks: places in the pool, in the order of picking.
        measurements: the measurement after each pick.
        order: place of the first pick in the prompt.
    """
    chosen = [place for place in picks if place >= 0]
    demos = picked_examples(query.pool, chosen, order)
    last_measurement = next(measurement for measurement in reversed(measurements) if measurement is not None)
    text = " | ".join(f"[{example.id}] {example.question} {example.answer}" for example in demos)
    return {
        "prompt": query.question,
        "key": query.id,
        "text": f"{text} | {query.question} -> {last_measurement.prediction}",
        "order": order,
        "demonstrations": [
            {"id": example.id, "question": example.question, "answer": example.answer} for example in demos
        ],
        "picks": [query.pool[place].id for place in chosen],
        "answers": list(query.answers),
        "measured": [
            None if measurement is None else asdict(measurement) for measurement in measurements[: len(chosen)]
        ],
    }


def records(
    queries: Sequence[Query],
    choices: Choices,
    measurements: Sequence[Sequence[Measurement | None]],
    table: RewardTable,
    order: Order,
    limit: int,
) -> list[Mapping[str, Any]]:
    """Lists one record a query: key, mode and numbers of all (for paired comparisons), with the demonstrations of the
    first `limit`.

    Args:
        choices: their choices, one row a query.
        measurements: the measurements of each query, one a pick.
        table: rewards, one a query.
        order: place of the first pick in the prompt.
        limit: number of records with demonstrations.
    """
    totals, picks = table.total("sum"), choices.picks.tolist()
    query_records: list[Mapping[str, Any]] = []
    for place, query in enumerate(queries):
        values_by_name: dict[str, Any] = {name: values[place] for name, values in table.values.items()}
        record = {
            "key": query.id,
            "mode": SELECTED,
            "sample": 0,
            "rewards": values_by_name | per_query(measurements[place]),
            "reward": totals[place],
        }
        query_records.append(
            (described(query, picks[place], measurements[place], order) if place < limit else {}) | record
        )
    return query_records
