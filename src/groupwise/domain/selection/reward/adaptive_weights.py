"""Weights of a reward's parts that follow what training sees of each: how far it spreads, or how often it tells a
group's members apart.
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
    say something. Averages are bias-corrected exponential ones over batches of rollouts; before the first batch, and
    where no part says anything, the weights are the configured ones.

    Example:
        >>> adapt = AdaptiveWeights(follow="informative", decay=0.0)
        >>> memory = adapt.observe(
        ...     {}, [{"correct": [1.0, 1.0], "info": [0.1, 0.3]}, {"correct": [0.0, 1.0], "info": [0.2, 0.3]}]
        ... )
        >>> adapt.weights({"correct": 1.0, "info": 1.0}, memory)
        {'correct': 0.6666666666666666, 'info': 1.3333333333333333}
    """

    follow: Literal["spread", "informative"] = "informative"
    """What the weights follow."""
    decay: float = Field(default=0.9, ge=0, lt=1)
    """Weight of the past, per batch of rollouts."""

    def weights(self, configured: Mapping[str, float], memory: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """The weights now.

        Args:
            configured: part -> weight.
            memory: what `observe` gave last; empty before.
        """
        known = {part: total / weight for part, (total, weight) in memory.items() if part in configured}
        if set(known) != set(configured):
            return dict(configured)
        factor = {
            part: 1 / max(value, _LEAST_SPREAD) if self.follow == "spread" else 1 - value
            for part, value in known.items()
        }
        if self.follow == "spread" and max(known.values()) < _LEAST_SPREAD:
            return dict(configured)
        # A part that never moved so far has no spread to be scaled by; it keeps the largest multiplier of those that
        # did.
        moving = [
            factor[part] for part, value in known.items() if self.follow == "informative" or value >= _LEAST_SPREAD
        ]
        factor = {part: min(value, max(moving)) for part, value in factor.items()}
        whole, scaled = (
            sum(abs(weight) * by for weight, by in pairs)
            for pairs in (_pairs(configured, None), _pairs(configured, factor))
        )
        return (
            dict(configured)
            if scaled == 0
            else {part: weight * factor[part] * whole / scaled for part, weight in configured.items()}
        )

    def observe(
        self, memory: Mapping[str, Sequence[float]], groups: Sequence[Mapping[str, Sequence[float]]]
    ) -> dict[str, list[float]]:
        """The memory after a batch; groups of one member say nothing.

        Args:
            memory: before.
            groups: part -> its values for the members of a group.
        """
        groups = [group for group in groups if min((len(values) for values in group.values()), default=0) > 1]
        after = {part: list(pair) for part, pair in memory.items()}
        for part in dict.fromkeys(part for group in groups for part in group):
            here = [self._measured(group[part]) for group in groups if part in group]
            total, weight = after.get(part, [0.0, 0.0])
            after[part] = [
                self.decay * total + (1 - self.decay) * sum(here) / len(here),
                self.decay * weight + (1 - self.decay),
            ]
        return after

    def _measured(self, values: Sequence[float]) -> float:
        if self.follow == "informative":
            return float(max(values) == min(values))
        mean = sum(values) / len(values)
        return (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5


def _pairs(weights: Mapping[str, float], factor: Mapping[str, float] | None) -> list[tuple[float, float]]:
    return [(weight, 1.0 if factor is None else factor[part]) for part, weight in weights.items()]
