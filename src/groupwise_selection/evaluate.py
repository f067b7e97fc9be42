"""Results of greedy choices: metrics by the number of demonstrations, and records for people."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, final

import numpy as np
import torch

from groupwise.domain.protocol import Cell, Interval, Table
from groupwise.reward import RewardTable
from groupwise.streams import Streams
from groupwise_selection import baseline
from groupwise_selection.config import EvaluationConfig
from groupwise_selection.example import Query, Questions
from groupwise_selection.measurement import Measurement, Measures, Order, in_order, picked_examples
from groupwise_selection.member_rewards import measured_prefixes
from groupwise_selection.policy.choices import NOTHING, Choices
from groupwise_selection.selector import Selector

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
    `accuracy_1`, `accuracy_2`, ... after that many picks.

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


def accuracies(measurements: Sequence[Measurement | None], shots: int) -> list[float]:
    """Returns the accuracy of one query after one, two, ... demonstrations; see `per_query`."""
    means = per_query(measurements)
    return [means[f"accuracy_{size}"] for size in range(1, shots + 1)]


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
        measurements: the measurement after each pick; empty where nothing was measured.
        order: place of the first pick in the prompt.
    """
    chosen = [place for place in picks if place >= 0]
    demos = picked_examples(query.pool, chosen, order)
    predictions = [measurement.prediction for measurement in measurements if measurement is not None]
    text = " | ".join(f"[{example.id}] {example.question} {example.answer}" for example in demos)
    return {
        "prompt": query.question,
        "key": query.id,
        "text": f"{text} | {query.question} -> {predictions[-1] if predictions else ''}".rstrip(),
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
        values: dict[str, Any] = {name: values[place] for name, values in table.values.items()}
        record = {"key": query.id, "mode": SELECTED, "sample": 0, "reward": totals[place]}
        record["rewards"] = values | per_query(measurements[place])
        shown = described(query, picks[place], measurements[place], order) if place < limit else {}
        query_records.append(shown | record)
    return query_records


# The evaluation of a selector as applications use it: every query chooses among the nearest examples of one store,
# not out of a pool that was laid out for it.


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
    choices = selected_choices(selector, pooled_queries)
    measured = measured_prefixes(measures, pooled_queries, choices, selector.trained.order)
    return [accuracies(row, selector.trained.shots) for row in measured]


# Tables of the policy beside every baseline, for every number of demonstrations, with intervals, and of its lead over
# them.

_MMR = (0.5, 0.7, 0.9)
_DPP = (1.0, 3.0, 10.0)
_ORACLE_WIDTH = 4
"""Beams of the oracle."""


@final
@dataclass(frozen=True)
class Setting:
    """The settings that all rows of the table share.

    Args:
        measures: measures choices with the task model.
        questions: queries of all splits.
        shots: highest number of demonstrations.
        order: place of the first pick in the prompt.
        config: numbers of queries, beams and resamples.
    """

    measures: Measures
    questions: Questions
    shots: int
    order: Order
    config: EvaluationConfig

    def accuracy(self, choices: Sequence[Sequence[baseline.Choice]], queries: Sequence[Query]) -> np.ndarray:
        """Measures the VQA accuracy of choices `[Q][shots]` for queries, fp64 `[Q, shots]`."""
        rows = [
            (query, in_order(choice, self.order))
            for query, query_choices in zip(queries, choices, strict=True)
            for choice in query_choices
        ]
        measurements = self.measures([query for query, _ in rows], [demos for _, demos in rows])
        return np.array([measurement.accuracy for measurement in measurements]).reshape(len(queries), self.shots)

    def picked(self, pick: baseline.Pick, queries: Sequence[Query]) -> np.ndarray:
        """Measures the VQA accuracy of a way to pick, fp64 `[Q, shots]`."""
        return self.accuracy(baseline.prefixes(pick, queries, self.shots), queries)


def baseline_tables(setting: Setting, policy_accuracy: np.ndarray, selector: Selector) -> list[Table]:
    """Computes two tables: the accuracy of every way to choose, and the policy's lead over each with a paired interval.

    The rows "as exported" choose among the nearest examples of the exported store, as users of the folder do; the other
    rows choose out of the run's pools.

    MMR and DPP have the setting that was best on the validation queries (or on as many training queries, where there
    are none).

    Args:
        setting: settings of all rows.
        policy_accuracy: the policy's accuracy, `[Q, shots]`, in the order of the held-out queries.
        selector: the policy as it would be exported.
    """
    questions, config = setting.questions, setting.config
    held_out = questions.held_out
    tuning_queries = questions.validation or questions.train[: len(held_out)]
    weights = resampled_weights([query.clusters for query in held_out], config.num_resamples)
    picks: dict[str, baseline.Pick] = {
        "zero-shot": baseline.zero_shot,
        "random": baseline.random(),
        "kNN": baseline.nearest,
        **_best(setting, {f"MMR {value:g}": baseline.mmr(value) for value in _MMR}, tuning_queries),
        **_best(setting, {f"DPP {value:g}": baseline.dpp(value) for value in _DPP}, tuning_queries),
        "best fixed set": baseline.fixed(
            setting.measures, questions.train[: config.num_fixed], setting.order, setting.shots
        ),
    }
    rows, leads = [], []
    for name, pick in picks.items():
        accuracy_of_baseline = setting.picked(pick, held_out)
        rows.append([name, *_intervals(accuracy_of_baseline, weights)])
        leads.append([name, *_intervals(policy_accuracy - accuracy_of_baseline, weights)])
    rows.append(["ours", *_intervals(policy_accuracy, weights)])
    notes = [_note(questions)]
    if config.num_oracle:
        queries = held_out[: config.num_oracle]
        num = len(queries)
        found = baseline.oracle(setting.measures, queries, setting.shots, setting.order, _ORACLE_WIDTH)
        rows.append([f"oracle beam ({num} queries)", *_intervals(setting.accuracy(found, queries), weights[:, :num])])
        rows.append([f"ours ({num} queries)", *_intervals(policy_accuracy[:num], weights[:, :num])])
        notes.append("The oracle looks at the answer.")
    exported_rows, note = used_rows(setting, held_out, selector, weights)
    rows[7:7] = exported_rows
    heads, chance = _heads(setting.shots), "An interval above 0 is a lead beyond chance."
    return [
        Table("baselines", "VQA accuracy by number of demonstrations", heads, rows, [*notes, note]),
        Table("lead", "Ours less each baseline, paired by query", heads, leads, [chance]),
    ]


def exported_table(setting: Setting, selector: Selector) -> Table:
    """Computes the VQA accuracy of a selector in use, compared with the nearest examples of the same store.

    Args:
        setting: settings of all rows.
        selector: the policy with its store.
    """
    held_out = setting.questions.held_out
    weights = resampled_weights([query.clusters for query in held_out], setting.config.num_resamples)
    rows, note = used_rows(setting, held_out, selector, weights)
    title, heads = "VQA accuracy as exported, by number of demonstrations", _heads(selector.trained.shots)
    return Table("exported", title, heads, rows, [_note(setting.questions), note])


def used_rows(
    setting: Setting, queries: Sequence[Query], selector: Selector, weights: np.ndarray
) -> tuple[list[list[Cell]], str]:
    """Computes the rows of a selector in use and of the nearest examples of its store, with a note for the table.

    Args:
        setting: settings of all rows.
        selector: the policy with its store.
        weights: `[R, Q]`, from `resampled_weights`.
    """
    policy_accuracy = np.array(accuracy(selector, queries, setting.measures))
    used = replace(setting, shots=selector.trained.shots, order=selector.trained.order)
    nearest_accuracy = used.picked(baseline.nearest, pooled(selector, queries))
    rows: list[list[Cell]] = [
        ["kNN, as exported", *_intervals(nearest_accuracy, weights)],
        ["ours, as exported", *_intervals(policy_accuracy, weights)],
    ]
    num_examples = len(selector.examples)
    return rows, (
        f"As exported: a query chooses among the {min(selector.trained.pool_size, num_examples)} nearest of the"
        f" {num_examples} solved examples in the folder."
    )


def _heads(shots: int) -> list[str]:
    return ["chosen by", *(f"{size} shot" + ("s" if size > 1 else "") for size in range(1, shots + 1))]


def _best(setting: Setting, picks: Mapping[str, baseline.Pick], queries: Sequence[Query]) -> dict[str, baseline.Pick]:
    """Returns the way to pick that is most accurate on some queries, under its name."""
    name = max(picks, key=lambda name: float(setting.picked(picks[name], queries).mean()))
    return {name: picks[name]}


def _intervals(values: np.ndarray, weights: np.ndarray) -> list[Interval]:
    return [Interval(*interval(values[:, size], weights)) for size in range(values.shape[1])]


def _note(questions: Questions) -> str:
    names = sorted({name for query in questions.held_out for name in query.clusters})
    called, shared = questions.evaluated_on.called("queries"), " and ".join(f"{name}s" for name in names) or "queries"
    return f"VQA accuracy of {len(questions.held_out)} {called}; 95 % intervals redraw {shared}."


# Confidence intervals of means over queries that share images or rules: a bootstrap that redraws the shared clusters.


def resampled_weights(clusters: Sequence[Mapping[str, str]], num_resamples: int, seed: int = 0) -> np.ndarray:
    """Draws how often each query counts in each resample, fp64 `[R, Q]`.

    For every name of a cluster (`image`, `rule`) its keys are redrawn with replacement, each name by itself; a query
    counts as often as the product of how often its keys were drawn. Queries without a cluster are redrawn themselves.

    Args:
        clusters: the clusters of each query, name -> key.
        num_resamples: `R`.
        seed: seed of the draws.

    Example:
        >>> weights = resampled_weights([{"rule": "a"}, {"rule": "a"}, {"rule": "b"}], 4)
        >>> bool((weights[:, 0] == weights[:, 1]).all()), weights.shape
        (True, (4, 3))

    Source: the pigeonhole bootstrap, Owen 2007, arXiv 0712.1111.
    """
    random = Streams(seed).numpy("bootstrap")
    names = sorted({name for query_clusters in clusters for name in query_clusters})
    keys = [
        [query_clusters.get(name, f"\x00{place}") for place, query_clusters in enumerate(clusters)] for name in names
    ] or [[str(place) for place in range(len(clusters))]]
    weights = np.ones((num_resamples, len(clusters)))
    for query_keys in keys:
        distinct_keys, place = np.unique(query_keys, return_inverse=True)
        weights *= random.multinomial(
            len(distinct_keys), np.full(len(distinct_keys), 1 / len(distinct_keys)), size=num_resamples
        )[:, place]
    return weights


def interval(values: np.ndarray, weights: np.ndarray, level: float = 0.95) -> tuple[float, float, float]:
    """Computes the mean of values with the ends of its percentile interval: `(mean, low, high)`.

    Args:
        values: fp64 `[Q]`.
        weights: `[R, Q]`, from `resampled_weights`.
        level: share of the resamples inside the interval, 0 to 1.

    Example:
        >>> interval(np.ones(3), np.ones((4, 3)))
        (1.0, 1.0, 1.0)
    """
    total = weights.sum(1)
    # With few clusters a resample may miss all of them, and then it has no mean.
    means = (weights @ values)[total > 0] / total[total > 0]
    low, high = np.quantile(means if means.size else [values.mean()], [(1 - level) / 2, (1 + level) / 2])
    return float(values.mean()), float(low), float(high)
