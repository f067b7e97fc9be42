"""The same value at every step."""

from __future__ import annotations

from typing import Literal, final

from pydantic import Field

from groupwise.schedule.base import Fixed


@final
class Constant(Fixed):
    """`value` at every step. A plain number in a file means this.

    Args:
        value: the value at every step.

    Example:
        >>> Constant(value=0.04).at(1000)
        0.04
    """

    kind: Literal["constant"] = "constant"
    value: float = Field(allow_inf_nan=False)

    def at(self, step: int, state: float | None = None) -> float:
        """Returns the value, at every step."""
        return self.value

    def extremes(self) -> tuple[float, float]:
        """Returns the value as the least and as the greatest one."""
        return self.value, self.value
