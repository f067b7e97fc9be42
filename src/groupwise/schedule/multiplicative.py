"""A coefficient that is multiplied while a measurement is outside its bounds."""

from __future__ import annotations

from typing import Literal, Self, final

from pydantic import Field, model_validator

from groupwise.config import Config


@final
class Multiplicative(Config):
    """The rule of source 004, once per update: `x factor` above `upper`, `/ factor` below `lower`, kept inside `[minimum, maximum]`.

    Example:
        >>> beta = Multiplicative(initial=0.1, lower=0.01, upper=0.1)
        >>> round(beta.observe(0.1, measured=0.2), 6), round(beta.observe(0.15, measured=0.001), 6), beta.observe(0.1, measured=0.05)
        (0.15, 0.1, 0.1)
    """

    kind: Literal["multiplicative"] = "multiplicative"
    initial: float = Field(gt=0, allow_inf_nan=False)
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
            raise ValueError(f"initial ({self.initial}) must lie in [minimum, maximum] = [{self.minimum}, {self.maximum}]")
        return self

    def init(self) -> float | None:
        return self.initial

    def at(self, step: int, state: float | None = None) -> float:
        return self.initial if state is None else state

    def observe(self, state: float | None, measured: float | None) -> float | None:
        if measured is None or state is None:
            return state
        moved = state * self.factor if measured > self.upper else state / self.factor if measured < self.lower else state
        return min(max(moved, self.minimum), self.maximum)

    def may_be_positive(self) -> bool:
        return True

    def extremes(self) -> tuple[float, float]:
        """The least and the greatest value it may come to."""
        return self.minimum, self.maximum
