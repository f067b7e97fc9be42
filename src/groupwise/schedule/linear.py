"""A straight line from one value to another."""

from __future__ import annotations

from typing import Literal, final

from pydantic import Field

from groupwise.config import Config


@final
class Linear(Config):
    """`start + (end - start) min(step / num_steps, 1)`, so `start` at step 0 and `end` from step `num_steps` on.

    Example:
        >>> Linear(start=1.0, end=0.0, num_steps=4).at(1)
        0.75
    """

    kind: Literal["linear"] = "linear"
    start: float = Field(allow_inf_nan=False)
    end: float = Field(allow_inf_nan=False)
    num_steps: int = Field(ge=1)

    def init(self) -> float | None:
        return None

    def at(self, step: int, state: float | None = None) -> float:
        return self.start + (self.end - self.start) * min(step / self.num_steps, 1.0)

    def observe(self, state: float | None, measured: float | None) -> float | None:
        return state

    def may_be_positive(self) -> bool:
        return max(self.start, self.end) > 0

    def extremes(self) -> tuple[float, float]:
        """The least and the greatest value it ever has."""
        return min(self.start, self.end), max(self.start, self.end)
