"""Tables of the policy beside every baseline, for every number of demonstrations, with intervals, and of its lead over
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from groupwise.domain.protocol import Cell, Interval, Table
from groupwise.domain.selection.baseline import Baseline, Dpp, Fixed, Mmr, Nearest, Oracle, Random, ZeroShot
from groupwise.domain.selection.bootstrap import interval, resampled_weights
from groupwise.domain.selection.config import EvaluationConfig
from groupwise.domain.selection.example import Query, Questions
from groupwise.domain.selection.measurement import Measures, Order, in_order
from groupwise.domain.selection.selector import Selector
from groupwise.domain.selection.selector_evaluation import accuracy, pooled

_MMR = (0.5, 0.7, 0.9)
_DPP = (1.0, 3.0, 10.0)


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

    def accuracy(self, baseline: Baseline, queries: Sequence[Query]) -> np.ndarray:
        """Measures the VQA accuracy of a baseline on queries, fp64 `[Q, shots]`."""
        choices = baseline.choose(queries, self.shots)
        rows = [
            (query, in_order(choice, self.order))
            for query, query_choices in zip(queries, choices, strict=True)
            for choice in query_choices
        ]
        measurements = self.measures([query for query, _ in rows], [demos for _, demos in rows])
        return np.array([measurement.accuracy for measurement in measurements]).reshape(len(queries), self.shots)


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
    fixed = Fixed(setting.measures, questions.train[: config.num_fixed], setting.order)
    mmr, dpp = (
        _best(setting, [Mmr(value) for value in _MMR], tuning_queries),
        _best(setting, [Dpp(value) for value in _DPP], tuning_queries),
    )
    rows, leads = [], []
    for baseline in (ZeroShot(), Random(), Nearest(), mmr, dpp, fixed):
        baseline_accuracy = setting.accuracy(baseline, held_out)
        rows.append([baseline.name, *_intervals(baseline_accuracy, weights)])
        leads.append([baseline.name, *_intervals(policy_accuracy - baseline_accuracy, weights)])
    rows.append(["ours", *_intervals(policy_accuracy, weights)])
    notes = [
        f"VQA accuracy of {len(held_out)} {questions.evaluated_on.called('queries')}; 95 % intervals redraw"
        f" {_shared(held_out)}."
    ]
    if config.num_oracle:
        oracle_queries = held_out[: config.num_oracle]
        baseline_accuracy = setting.accuracy(
            Oracle(setting.measures, setting.order, config.oracle_width), oracle_queries
        )
        rows.append(
            [
                f"oracle beam ({len(oracle_queries)} queries)",
                *_intervals(baseline_accuracy, weights[:, : len(oracle_queries)]),
            ]
        )
        rows.append(
            [
                f"ours ({len(oracle_queries)} queries)",
                *_intervals(policy_accuracy[: len(oracle_queries)], weights[:, : len(oracle_queries)]),
            ]
        )
        notes.append("The oracle looks at the answer.")
    exported_rows, note = used_rows(setting, held_out, selector, weights)
    rows[7:7] = exported_rows
    heads = _heads(setting.shots)
    return [
        Table("baselines", "VQA accuracy by number of demonstrations", heads, rows, [*notes, note]),
        Table(
            "lead",
            "Ours less each baseline, paired by query",
            heads,
            leads,
            ["An interval above 0 is a lead beyond chance."],
        ),
    ]


def exported_table(setting: Setting, selector: Selector) -> Table:
    """Computes the VQA accuracy of a selector in use, beside the nearest examples of the same store.

    Args:
        setting: settings of all rows.
        selector: the policy with its store.
    """
    held_out = setting.questions.held_out
    rows, note = used_rows(
        setting,
        held_out,
        selector,
        resampled_weights([query.clusters for query in held_out], setting.config.num_resamples),
    )
    notes = [
        (
            f"VQA accuracy of {len(held_out)} {setting.questions.evaluated_on.called('queries')}; 95 % intervals redraw"
            f" {_shared(held_out)}."
        ),
        note,
    ]
    return Table(
        "exported", "VQA accuracy as exported, by number of demonstrations", _heads(selector.trained.shots), rows, notes
    )


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
    nearest_accuracy = replace(setting, shots=selector.trained.shots, order=selector.trained.order).accuracy(
        Nearest(), pooled(selector, queries)
    )
    rows: list[list[Cell]] = [
        ["kNN, as exported", *_intervals(nearest_accuracy, weights)],
        ["ours, as exported", *_intervals(policy_accuracy, weights)],
    ]
    pool_size, num_examples = selector.trained.pool_size, len(selector.examples)
    return (
        rows,
        (
            f"As exported: a query chooses among the {min(pool_size, num_examples)} nearest of the {num_examples}"
            " solved examples in the folder."
        ),
    )


def _heads(shots: int) -> list[str]:
    return ["chosen by", *(f"{size} shot" + ("s" if size > 1 else "") for size in range(1, shots + 1))]


def _best(setting: Setting, variants: Sequence[Baseline], queries: Sequence[Query]) -> Baseline:
    values = [float(setting.accuracy(variant, queries).mean()) for variant in variants]
    return variants[values.index(max(values))]


def _intervals(values: np.ndarray, weights: np.ndarray) -> list[Interval]:
    return [Interval(*interval(values[:, size], weights)) for size in range(values.shape[1])]


def _shared(queries: Sequence[Query]) -> str:
    names = sorted({name for query in queries for name in query.clusters})
    return " and ".join(f"{name}s" for name in names) or "queries"
