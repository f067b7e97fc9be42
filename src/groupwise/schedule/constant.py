"""The same value at every step."""

from __future__ import annotations

from typing import Literal, final

from pydantic import Field

from groupwise.config import Config


@final
class Constant(Config):
    """`value` at every step. A plain number in a file means this.

    Example:
        >>> Constant(value=0.04).at(1000)
        0.04
    """

    kind: Literal["constant"] = "constant"
    value: float = Field(allow_inf_nan=False)

    def init(self) -> float | None:
        return None

    def at(self, step: int, state: float | None = None) -> float:
        return self.value

    def observe(self, state: float | None, measured: float | None) -> float | None:
        return state

    def may_be_positive(self) -> bool:
        return self.value > 0

    def extremes(self) -> tuple[float, float]:
        """The least and the greatest value it ever has."""
        return self.value, self.value
