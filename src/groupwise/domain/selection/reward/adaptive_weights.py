"""Weights of a reward's parts that adapt to the rollouts: to the spread of each part, or to the share of groups whose
members it tells apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, final

from pydantic import Field

from groupwise.config import Config

_LEAST_SPREAD = 1e-6


@final
class AdaptiveWeights(Config):
    """`w_j' = w_j m_j`, the multipliers scaled so that `sum_j |w_j'| = sum_j |w_j|`.

    `spread`: `m_j = 1 / s_j`, `s_j` the running mean of the part's standard deviation inside groups, so that each part
    moves the reward in proportion to its configured weight, whatever its own scale. `informative`: `m_j = 1 - f_j`,
    `f_j` the running share of groups in which the part is the same for all members, so that weight goes to parts that
    distinguish members. Averages are bias-corrected exponential ones over batches of rollouts; before the first batch,
    and where no part distinguishes members, the weights are the configured ones.

    Example:
        >>> adapt = AdaptiveWeights(follow="informative", decay=0.0)
        >>> memory = adapt.observe(
        ...     {}, [{"correct": [1.0, 1.0], "info": [0.1, 0.3]}, {"correct": [0.0, 1.0], "info": [0.2, 0.3]}]
        ... )
        >>> adapt.weights({"correct": 1.0, "info": 1.0}, memory)
        {'correct': 0.6666666666666666, 'info': 1.3333333333333333}
    """

    follow: Literal["spread", "informative"] = "informative"
    """The statistic that the weights follow."""
    decay: float = Field(default=0.9, ge=0, lt=1)
    """Weight of the past, per batch of rollouts."""

    def weights(self, configured: Mapping[str, float], memory: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """Computes the current weights.

        Args:
            configured: part -> weight.
            memory: the last return value of `observe`; empty before the first batch.
        """
        averages = {part: total / weight for part, (total, weight) in memory.items() if part in configured}
        if set(averages) != set(configured):
            return dict(configured)
        factor = {
            part: 1 / max(value, _LEAST_SPREAD) if self.follow == "spread" else 1 - value
            for part, value in averages.items()
        }
        if self.follow == "spread" and max(averages.values()) < _LEAST_SPREAD:
            return dict(configured)
        # A part that never moved so far has no spread to be scaled by; it keeps the largest multiplier of those that
        # did.
        moving = [
            factor[part] for part, value in averages.items() if self.follow == "informative" or value >= _LEAST_SPREAD
        ]
        factor = {part: min(value, max(moving)) for part, value in factor.items()}
        configured_total, scaled_total = (
            sum(abs(weight) * multiplier for weight, multiplier in pairs)
            for pairs in (_pairs(configured, None), _pairs(configured, factor))
        )
        return (
            dict(configured)
            if scaled_total == 0
            else {part: weight * factor[part] * configured_total / scaled_total for part, weight in configured.items()}
        )

    def observe(
        self, memory: Mapping[str, Sequence[float]], groups: Sequence[Mapping[str, Sequence[float]]]
    ) -> dict[str, list[float]]:
        """Computes the memory after a batch; groups of one member do not count.

        Args:
            memory: the memory before the batch.
            groups: for each group, part -> values of its members.
        """
        groups = [group for group in groups if min((len(values) for values in group.values()), default=0) > 1]
        updated = {part: list(pair) for part, pair in memory.items()}
        for part in dict.fromkeys(part for group in groups for part in group):
            spreads = [self._spread(group[part]) for group in groups if part in group]
            total, weight = updated.get(part, [0.0, 0.0])
            updated[part] = [
                self.decay * total + (1 - self.decay) * sum(spreads) / len(spreads),
                self.decay * weight + (1 - self.decay),
            ]
        return updated

    def _spread(self, values: Sequence[float]) -> float:
        if self.follow == "informative":
            return float(max(values) == min(values))
        mean = sum(values) / len(values)
        return (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5


def _pairs(weights: Mapping[str, float], factor: Mapping[str, float] | None) -> list[tuple[float, float]]:
    return [(weight, 1.0 if factor is None else factor[part]) for part, weight in weights.items()]
