"""A coefficient that steers a measurement towards a target in proportion to the error."""

from __future__ import annotations

import math
from typing import Literal, final

from pydantic import Field

from groupwise.schedule.base import Measured


@final
class Adaptive(Measured):
    """Proportional control, once per update: `value <- value (1 + clip(measured / target - 1, -0.2, 0.2) / horizon)`.

    Args:
        initial: the value before the first measurement.
        target: what the measurement should be, in its own unit (nats for a divergence).
        horizon: number of updates over which a full error changes the value by a fifth.

    Example:
        >>> beta = Adaptive(initial=0.1, target=0.05, horizon=10)
        >>> round(beta.observe(beta.init(), measured=0.10), 6)
        0.102

    Source: Ziegler et al. 2019, arXiv 1909.08593, section 2.2.
    """

    kind: Literal["adaptive"] = "adaptive"
    target: float = Field(gt=0, allow_inf_nan=False)
    horizon: float = Field(default=100.0, ge=1, allow_inf_nan=False)

    def moved(self, value: float, measured: float) -> float:
        """Returns the value after one measurement."""
        error = min(max(measured / self.target - 1, -0.2), 0.2)
        return value * (1 + error / self.horizon)

    def extremes(self) -> tuple[float, float]:
        """Returns the least and the greatest possible value. The value is multiplied, so it stays above 0; it has no
        upper bound.
        """
        return 0.0, math.inf
