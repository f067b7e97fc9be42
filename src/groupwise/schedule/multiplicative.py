"""A coefficient that is multiplied while a measurement is outside its bounds."""

from __future__ import annotations

from typing import Literal, Self, final

from pydantic import Field, model_validator

from groupwise.schedule.base import Measured


@final
class Multiplicative(Measured):
    """The rule of source 004, once per update: `x factor` above `upper`, `/ factor` below `lower`, kept inside
    `[minimum, maximum]`.

    Args:
        initial: the value before the first measurement.
        lower: below this the value is divided.
        upper: above this the value is multiplied.
        factor: the factor by which the value is multiplied or divided.
        minimum: the least possible value.
        maximum: the greatest possible value.

    Raises:
        ValueError: `lower` above `upper`, or `initial` outside `[minimum, maximum]`.

    Example:
        >>> beta = Multiplicative(initial=0.1, lower=0.01, upper=0.1)
        >>> (
        ...     round(beta.observe(0.1, measured=0.2), 6),
        ...     round(beta.observe(0.15, measured=0.001), 6),
        ...     beta.observe(0.1, measured=0.05),
        ... )
        (0.15, 0.1, 0.1)
    """

    kind: Literal["multiplicative"] = "multiplicative"
    lower: float = Field(ge=0, allow_inf_nan=False)
    upper: float = Field(gt=0, allow_inf_nan=False)
    factor: float = Field(default=1.5, gt=1, allow_inf_nan=False)
    minimum: float = Field(default=1e-6, gt=0, allow_inf_nan=False)
    maximum: float = Field(default=1e3, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.lower > self.upper:
            raise ValueError(f"lower ({self.lower}) must not exceed upper ({self.upper})")
        if not self.minimum <= self.initial <= self.maximum:
            raise ValueError(
                f"initial ({self.initial}) must lie in [minimum, maximum] = [{self.minimum}, {self.maximum}]"
            )
        return self

    def moved(self, value: float, measured: float) -> float:
        """Returns the value after one measurement."""
        value = (
            value * self.factor if measured > self.upper else value / self.factor if measured < self.lower else value
        )
        return min(max(value, self.minimum), self.maximum)

    def extremes(self) -> tuple[float, float]:
        """Returns `minimum` and `maximum`."""
        return self.minimum, self.maximum
