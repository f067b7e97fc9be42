"""Weights of a reward's parts that adapt to the rollouts: to the spread of each part, or to the share of groups whose
members it distinguishes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, final

import numpy as np
from pydantic import Field, model_validator

from groupwise.config import Config
from groupwise.reward.base import Reward
from groupwise.reward.completions import Text

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


# A number scaled between two running quantiles of its values: 0 at the low quantile, 1 at the high one.

ASSUMED = (0.0, 0.1)
"""The range of information gains before the first batch, as source 004 assumes it."""


@final
class RunningQuantile(Config):
    """`clip((x - low) / (high - low), 0, 1)` between two running quantiles of `x`.

    Each is a bias-corrected exponential average of a batch's own quantile, so that the quantiles of
    the first batch count in full; before it, they are 0 and 0.1. Where both quantiles are equal, values above them
    become 1 and others 0. The order of
    members is kept except beyond the quantiles, where all members are equal.

    Example:
        >>> scale = RunningQuantile(low=0.0, high=1.0, decay=0.5)
        >>> scale(0.05, {}), scale(0.3, {})
        (0.5, 1.0)
        >>> memory = scale.follow(scale.follow({}, [0.0, 2.0]), [0.0, 8.0])
        >>> memory["high"] / memory["weight"], scale(3.0, memory)
        (6.0, 0.5)
    """

    kind: Literal["quantile"] = "quantile"
    low: float = Field(default=0.05, ge=0, le=1)
    """The quantile that becomes 0."""
    high: float = Field(default=0.95, ge=0, le=1)
    """The quantile that becomes 1."""
    decay: float = Field(default=0.9, ge=0, lt=1)
    """Weight of the past, per batch of rollouts."""

    @model_validator(mode="after")
    def _ordered(self) -> RunningQuantile:
        if self.low >= self.high:
            raise ValueError(f"low = {self.low} must be below high = {self.high}")
        return self

    def __call__(self, value: float, memory: Mapping[str, float]) -> float:
        """Scales a value to 0 to 1.

        Args:
            value: the measured value.
            memory: the last return value of `follow`; empty before the first batch.
        """
        low, high = self.bounds(memory)
        if high <= low:
            return float(value > high)
        return min(max((value - low) / (high - low), 0.0), 1.0)

    def bounds(self, memory: Mapping[str, float]) -> tuple[float, float]:
        """Returns the values that become 0 and 1.

        Args:
            memory: the last return value of `follow`; empty before the first batch.
        """
        return (memory["low"] / memory["weight"], memory["high"] / memory["weight"]) if memory else ASSUMED

    def follow(self, memory: Mapping[str, float], values: Sequence[float]) -> dict[str, float]:
        """Computes the memory after a batch; without values the memory stays.

        Args:
            memory: the memory before the batch.
            values: measured values of the batch.
        """
        if not values:
            return dict(memory)
        low, high = np.quantile(values, [self.low, self.high]).tolist()
        fresh = {"low": low, "high": high, "weight": 1.0}
        return {name: self.decay * memory.get(name, 0.0) + (1 - self.decay) * number for name, number in fresh.items()}


@final
class TimesTen(Config):
    """`min(1, 10 x)`: source 004's own scale, which assumes a range of 0 to 0.1. Kept for comparison; negative values
    stay negative.

    Example:
        >>> TimesTen()(0.03, {}), TimesTen()(0.5, {}), TimesTen()(-0.1, {})
        (0.3, 1.0, -1.0)
    """

    kind: Literal["x10"] = "x10"

    def __call__(self, value: float, memory: Mapping[str, float]) -> float:
        """Scales a value; the memory is not read."""
        return min(1.0, 10 * value)

    def bounds(self, memory: Mapping[str, float]) -> tuple[float, float]:
        """Returns the values that become 0 and 1: always 0 and 0.1."""
        return ASSUMED

    def follow(self, memory: Mapping[str, float], values: Sequence[float]) -> dict[str, float]:
        """Returns an empty memory: the scale is fixed."""
        return {}


Scale = Annotated[RunningQuantile | TimesTen, Field(discriminator="kind")]
"""Any scale from an unbounded number to 0 to 1, distinguished by `kind`."""


@final
class ShotCost(Reward):
    """`R = - shots`, the number of examples that were shown; its weight is the cost of one more.

    With a policy that may stop, a weight of 0.01 makes a further example worth picking when it adds more than a
    hundredth to the other rewards. Where every member is shown as many examples it is the same for all and changes
    nothing.

    Example:
        >>> ShotCost()(["q1"] * 2, ["7", "7"], shots=[4, 1])
        [-4.0, -1.0]
    """

    kind: Literal["shot_cost"] = "shot_cost"
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01
    """The cost of one more example, in units of the sum of rewards."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The column with the number of examples."""
        return ("shots",)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> list[float]:
        return [-float(shots) for shots in columns["shots"]]
