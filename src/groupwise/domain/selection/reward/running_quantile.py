"""A number on the scale of what was seen of it: 0 at a low quantile, 1 at a high one, both followed while training goes
on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, final

from pydantic import Field, model_validator

from groupwise.config import Config

ASSUMED = (0.0, 0.1)
"""The range of information gains before anything was seen: the one source 004 assumes."""


@final
class RunningQuantile(Config):
    """`clip((x - low) / (high - low), 0, 1)` between two running quantiles of `x`.

    Each is a bias-corrected exponential average of a batch's own quantile, so the first batch gives exactly its own;
    before it, 0 and 0.1 stand in. Where both quantiles are equal, what lies above is 1 and the rest 0. The order of
    members is kept except beyond the quantiles, where all are equal.

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
        """The value on its scale.

        Args:
            value: as measured.
            memory: what `follow` gave last; empty before.
        """
        low, high = self.bounds(memory)
        if high <= low:
            return float(value > high)
        return min(max((value - low) / (high - low), 0.0), 1.0)

    def bounds(self, memory: Mapping[str, float]) -> tuple[float, float]:
        """What is 0 and what is 1 now.

        Args:
            memory: what `follow` gave last; empty before.
        """
        return (memory["low"] / memory["weight"], memory["high"] / memory["weight"]) if memory else ASSUMED

    def follow(self, memory: Mapping[str, float], values: Sequence[float]) -> dict[str, float]:
        """The memory after a batch; without values, as it was.

        Args:
            memory: before.
            values: as measured.
        """
        if not values:
            return dict(memory)
        fresh = {"low": _quantile(values, self.low), "high": _quantile(values, self.high), "weight": 1.0}
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
        """The value on its scale; the memory is not read.

        Args:
            value: as measured.
            memory: not read.
        """
        return min(1.0, 10 * value)

    def bounds(self, memory: Mapping[str, float]) -> tuple[float, float]:
        """What is 0 and what is 1: always 0 and 0.1."""
        return ASSUMED

    def follow(self, memory: Mapping[str, float], values: Sequence[float]) -> dict[str, float]:
        """Nothing is remembered."""
        return {}


Scale = Annotated[RunningQuantile | TimesTen, Field(discriminator="kind")]
"""How an unbounded number is brought to 0 to 1."""


def _quantile(values: Sequence[float], level: float) -> float:
    """Linear between the two nearest, as numpy's default."""
    ordered = sorted(values)
    place = level * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
