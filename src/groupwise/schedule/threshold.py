"""A coefficient that acts while a measurement lies at or below its target, and moves by a fixed step."""

from __future__ import annotations

from typing import Literal, Self, final

from pydantic import Field, model_validator

from groupwise.schedule.base import Value


@final
class Threshold(Value):
    """Step control, once per update: the coefficient rises by `delta`, to `high` at most, where the measurement lies at
    or below `target`, and falls by `delta`, to `low` at least, where it lies above. The value is the coefficient after
    the first and 0 after the second.

    The one number of state is the coefficient; it is negative while the value is 0. Before the first measurement the
    value is 0.

    Args:
        initial: the coefficient before the first measurement.
        target: the measurement at or below which the coefficient acts, in its own unit (nats for an entropy).
        delta: how far one update moves the coefficient.
        low, high: its bounds.

    Example:
        >>> coefficient = Threshold(initial=0.25, target=0.2, delta=0.125)
        >>> after_low = coefficient.observe(coefficient.init(), measured=0.1)
        >>> after_high = coefficient.observe(after_low, measured=0.3)
        >>> [coefficient.at(0, state) for state in (coefficient.init(), after_low, after_high)], after_high
        ([0.0, 0.375, 0.0], -0.25)

    Source: the adaptive entropy coefficient of Skywork-OR1, arXiv 2505.22312; the defaults are those of TRL.
    """

    kind: Literal["threshold"] = "threshold"
    initial: float = Field(ge=0, allow_inf_nan=False)
    target: float = Field(default=0.2, allow_inf_nan=False)
    delta: float = Field(default=0.005, gt=0, allow_inf_nan=False)
    low: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    high: float = Field(default=1.0, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) must not lie above high ({self.high})")
        return self

    def init(self) -> float:
        """Returns the state before the first update: the coefficient, at rest."""
        return -self.initial

    def at(self, step: int, state: float | None = None) -> float:
        """Returns the coefficient where it acts, and 0 where it rests.

        Args:
            step: not read.
            state: what `observe` gave last.
        """
        return max(self.init() if state is None else state, 0.0)

    def observe(self, state: float | None, measured: float | None) -> float | None:
        """Returns the state after an update; where nothing was measured, as it was.

        Args:
            state: before.
            measured: the newest value of what is followed, or None.
        """
        if measured is None or state is None:
            return state
        if measured <= self.target:
            return min(abs(state) + self.delta, self.high)
        return -max(abs(state) - self.delta, self.low)

    def extremes(self) -> tuple[float, float]:
        """Returns 0 and `high`."""
        return 0.0, max(self.high, self.initial)
