"""From choices to rewards: the measurements of prefixes, their rewards, and the credit of a pick for its effect on
later prefixes.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
from torch import Tensor

from groupwise.reward import RewardError, Rewards, RewardTable
from groupwise_selection.config import PrefixConfig
from groupwise_selection.example import Query
from groupwise_selection.measurement import FIELDS, Measurement, Measures, Order, picked_examples
from groupwise_selection.policy.choices import Choices

COLUMNS = (*FIELDS, "shots", "id", "answers", "choices")
"""Columns that rewards can read in addition to the question and the task model's answer."""


def measured_prefixes(
    measures: Measures, queries: Sequence[Query], choices: Choices, order: Order, *, every: bool = True
) -> list[list[Measurement | None]]:
    """Measures the choices of members, `[B][T]`: place `t` holds the measurement of the first `t + 1` picks, `None`
    where that prefix is not measured.

    Args:
        measures: measures choices with the task model.
        queries: the query of each member.
        choices: the choice of each member.
        order: place of the first pick in the prompt.
        every: true measures every prefix, false only the whole choice.
    """
    picks, lengths = choices.picks.tolist(), choices.lengths.tolist()
    prefixes = [(row, size) for row, length in enumerate(lengths) for size in range(1 if every else length, length + 1)]
    measurements = measures(
        [queries[row] for row, _ in prefixes],
        [picked_examples(queries[row].pool, picks[row][:size], order) for row, size in prefixes],
    )
    table: list[list[Measurement | None]] = [[None] * len(picks[0]) for _ in picks]
    for (row, size), measurement in zip(prefixes, measurements, strict=True):
        table[row][size - 1] = measurement
    return table


@final
class MemberRewards:
    """Rewards measured members.

    Args:
        rewards: the opened rewards.
        prefix: settings of prefix rewards; `None` rewards whole choices.
    """

    def __init__(self, rewards: Rewards, prefix: PrefixConfig | None) -> None:
        self.rewards, self.prefix = rewards, prefix

    def reward(
        self,
        queries: Sequence[Query],
        measurements: Sequence[Sequence[Measurement | None]],
        mask: Tensor,
        *,
        judges: bool,
    ) -> RewardTable:
        """Rewards whole choices, one value a member; with `prefix`, also one a pick (`maps`), and `values` are means
        over the prefixes.

        Args:
            queries: the query of each member.
            measurements: from `measured_prefixes`.
            mask: `[B, T]` bool, true where there was a decision.
            judges: true asks judges too.

        Raises:
            RewardError: a reward is missing for a prefix.
        """
        sizes = [[size for size, measurement in enumerate(row, 1) if measurement is not None] for row in measurements]
        rows = [
            (member, size)
            for member, member_sizes in enumerate(sizes)
            for size in (member_sizes if self.prefix is not None else member_sizes[-1:])
        ]
        prefixes = [(queries[member], size, measurements[member][size - 1]) for member, size in rows]
        table = self.rewards.score(
            [query.question for query, _, _ in prefixes],
            [_present(measurement).prediction for _, _, measurement in prefixes],
            _columns(prefixes),
            judges=judges,
        )
        if self.prefix is None:
            return table
        values: dict[str, list[float | None]] = {name: [] for name in table.values}
        maps: dict[str, list[Any]] = {name: [] for name in table.values}
        start = 0
        for member, member_sizes in enumerate(sizes):
            places, start = slice(start, start + len(member_sizes)), start + len(member_sizes)
            for name, prefix_rewards in table.values.items():
                member_values = prefix_rewards[places]
                if any(value is None for value in member_values):
                    raise RewardError(
                        f"reward {name!r} is missing for a prefix of query {queries[member].id!r}; prefix rewards need"
                        " all of them",
                        reward=name,
                    )
                earned = [float(value) for value in member_values if value is not None]
                values[name].append(sum(earned) / len(earned))
                maps[name].append(
                    credited(earned, int(mask[member].sum()), mask.shape[1], self.prefix.discount, self.prefix.weights)
                )
        # The fields that rewards were computed from, with one entry a prefix for each member.
        bounds = list(itertools.pairwise(np.cumsum([0, *map(len, sizes)]).tolist()))
        fields = {
            name: {field: [list(column[begin:end]) for begin, end in bounds] for field, column in columns.items()}
            for name, columns in table.fields.items()
        }
        maps = {name: credit_map for name, credit_map in maps.items() if name not in table.judges}
        return replace(table, values=values, maps=maps, fields=fields)


def credited(
    earned: Sequence[float], num_decisions: int, width: int, discount: float, weights: Sequence[float] | None = None
) -> np.ndarray:
    """Credits each decision, fp64 `[T]`: `G_t = sum_{s >= t} d^(s - t) w_s R_s / sum_{s >= t} d^(s - t)
    w_s`; the decision to end has the reward of the last prefix. Where no later prefix has a weight, the credit is 0.

    Args:
        earned: `R` of each prefix.
        num_decisions: decisions of the member; one more than its prefixes where it ended early.
        width: `T`; places without a decision are 0.
        discount: `d`.
        weights: `w` of each number of examples; equal where unset.

    Example:
        >>> credited([0.0, 1.0, 1.0], 3, 4, 1.0).round(3).tolist()
        [0.667, 1.0, 1.0, 0.0]
        >>> credited([0.0, 1.0], 3, 3, 0.0).tolist()
        [0.0, 1.0, 1.0]
    """
    credit = np.zeros(width)
    total = weight = 0.0
    for place in reversed(range(len(earned))):
        prefix_weight = 1.0 if weights is None else weights[place]
        total, weight = prefix_weight * earned[place] + discount * total, prefix_weight + discount * weight
        credit[place] = total / weight if weight > 0 else 0.0
    if num_decisions > len(earned):
        credit[len(earned)] = earned[-1]
    return credit


def _present(measurement: Measurement | None) -> Measurement:
    assert measurement is not None, "a prefix is rewarded after it was measured"
    return measurement


def _columns(measured_prefixes: Sequence[tuple[Query, int, Measurement | None]]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        name: [getattr(_present(measurement), name) for _, _, measurement in measured_prefixes] for name in FIELDS
    }
    columns["shots"] = [size for _, size, _ in measured_prefixes]
    columns["id"] = [query.id for query, _, _ in measured_prefixes]
    columns["answers"] = [list(query.answers) for query, _, _ in measured_prefixes]
    columns["choices"] = [list(query.choices) for query, _, _ in measured_prefixes]
    return columns
