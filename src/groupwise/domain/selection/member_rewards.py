"""From choices to rewards: what is measured of which prefix, and how a pick is credited with what it did to
later ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
from torch import Tensor

from groupwise.domain.selection.config import PrefixConfig
from groupwise.domain.selection.example import Query
from groupwise.domain.selection.measurement import FIELDS, Measured, Measures, Order, shown
from groupwise.domain.selection.policy.choices import Choices
from groupwise.reward import RewardError, Rewards, RewardTable

COLUMNS = (*FIELDS, "shots", "id", "answers", "choices")
"""What rewards find beside the question and the task model's answer."""


@final
class Rewarding:
    """Measures members and rewards them.

    Args:
        rewards: opened.
        prefix: how prefixes are rewarded; `None` rewards whole choices.
    """

    def __init__(self, rewards: Rewards, prefix: PrefixConfig | None) -> None:
        self.rewards, self.prefix = rewards, prefix

    def measure(
        self, measures: Measures, queries: Sequence[Query], choices: Choices, order: Order, *, every: bool
    ) -> list[list[Measured | None]]:
        """`B` lists of what was measured after each pick: place `t` holds the first `t + 1`. `None` where it was not
        asked for.

        Args:
            measures: measures.
            queries: of each member.
            choices: of each member.
            order: in which picks are shown.
            every: measure every prefix, not the whole choice alone.
        """
        picks, lengths = choices.picks.tolist(), choices.lengths.tolist()
        asked = [(row, size) for row, most in enumerate(lengths) for size in range(1 if every else most, most + 1)]
        found = measures(
            [queries[row] for row, _ in asked],
            [shown(queries[row].pool, picks[row][:size], order) for row, size in asked],
        )
        table: list[list[Measured | None]] = [[None] * len(picks[0]) for _ in picks]
        for (row, size), each in zip(asked, found, strict=True):
            table[row][size - 1] = each
        return table

    def reward(
        self, queries: Sequence[Query], measured: Sequence[Sequence[Measured | None]], mask: Tensor, *, judges: bool
    ) -> RewardTable:
        """Rewards of whole choices, one a member; with `prefix`, also one a pick (`maps`), and `values` are means over
        the prefixes.

        Args:
            queries: of each member.
            measured: what `measure` gave.
            mask: `[B, T]` decisions.
            judges: whether judges are asked too.

        Raises:
            RewardError: a reward that is missing for a prefix.
        """
        sizes = [[size for size, each in enumerate(row, 1) if each is not None] for row in measured]
        rows = [
            (member, size)
            for member, found in enumerate(sizes)
            for size in (found if self.prefix is not None else found[-1:])
        ]
        asked = [(queries[member], size, measured[member][size - 1]) for member, size in rows]
        table = self.rewards.score(
            [query.question for query, _, _ in asked],
            [_known(each).prediction for _, _, each in asked],
            _columns(asked),
            judges=judges,
        )
        if self.prefix is None:
            return table
        values: dict[str, list[float | None]] = {name: [] for name in table.values}
        maps: dict[str, list[Any]] = {name: [] for name in table.values}
        start = 0
        for member, found in enumerate(sizes):
            part, start = slice(start, start + len(found)), start + len(found)
            for name, every in table.values.items():
                own = every[part]
                if any(value is None for value in own):
                    raise RewardError(
                        f"reward {name!r} is missing for a prefix of query {queries[member].id!r}; prefix rewards need"
                        " all of them",
                        reward=name,
                    )
                earned = [float(value) for value in own if value is not None]
                values[name].append(sum(earned) / len(earned))
                maps[name].append(
                    credited(earned, int(mask[member].sum()), mask.shape[1], self.prefix.discount, self.prefix.weights)
                )
        # What rewards were made of, with one entry a prefix for each member.
        bounds = np.cumsum([0, *(len(found) for found in sizes)]).tolist()
        parts = list(itertools.pairwise(bounds))
        fields = {
            name: {each: [list(rows[a:b]) for a, b in parts] for each, rows in own.items()}
            for name, own in table.fields.items()
        }
        return replace(
            table,
            values=values,
            maps={name: each for name, each in maps.items() if name not in table.judges},
            fields=fields,
        )


def credited(
    earned: Sequence[float], num_decisions: int, width: int, discount: float, weights: Sequence[float] | None = None
) -> np.ndarray:
    """What each decision is credited with, fp64 `[T]`: `G_t = sum_{s >= t} d^(s - t) w_s R_s / sum_{s >= t} d^(s - t)
    w_s`; the decision to end, with the last prefix. Where no later prefix has a weight, a decision is credited with
    nothing.

    Args:
        earned: `R` of each prefix.
        num_decisions: those of the member; one more than prefixes where it ended early.
        width: `T`; places without a decision are 0.
        discount: `d`.
        weights: `w` of each number of examples; equal where unset.

    Example:
        >>> credited([0.0, 1.0, 1.0], 3, 4, 1.0).round(3).tolist()
        [0.667, 1.0, 1.0, 0.0]
        >>> credited([0.0, 1.0], 3, 3, 0.0).tolist()
        [0.0, 1.0, 1.0]
    """
    found = np.zeros(width)
    total = weight = 0.0
    for place in reversed(range(len(earned))):
        own = 1.0 if weights is None else weights[place]
        total, weight = own * earned[place] + discount * total, own + discount * weight
        found[place] = total / weight if weight > 0 else 0.0
    if num_decisions > len(earned):
        found[len(earned)] = earned[-1]
    return found


def _known(each: Measured | None) -> Measured:
    assert each is not None, "only what was measured is rewarded"
    return each


def _columns(asked: Sequence[tuple[Query, int, Measured | None]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [getattr(_known(each), name) for _, _, each in asked] for name in FIELDS}
    found["shots"] = [size for _, size, _ in asked]
    found["id"] = [query.id for query, _, _ in asked]
    found["answers"] = [list(query.answers) for query, _, _ in asked]
    found["choices"] = [list(query.choices) for query, _, _ in asked]
    return found
