"""A number scaled between two running quantiles of its values: 0 at the low quantile, 1 at the high one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, final

import numpy as np
from pydantic import Field, model_validator

from groupwise.config import Config

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
"""Any scale from an unbounded number to 0 to 1, told apart by `kind`."""
