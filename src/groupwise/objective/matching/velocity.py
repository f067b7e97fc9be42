"""The matching error of a noised copy in place of a log-prob (AWM)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, final

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.deviation import Deviation
from groupwise.objective.noised_copies import NoisedCopies

_SMALLEST = 1e-10
"""Added to the error before its root, whose slope at 0 is infinite."""


@final
class Velocity(NoisedCopies):
    """`lp = -w(t, l)` with `l = mean (v(x_t, t) - target)^2`, the loss of pre-training on a noised copy of the sample.

    A decision is one copy. Its `lp` stands where a log-prob stands: ratio, trust region, credit and aggregation act on
    it as on any other. At ratio one the gradient is that of `-A w(t, l)`: the pre-training loss, weighted by the
    advantage.

    Example:
        >>> import torch
        >>> live = torch.tensor([[2.0, 0.0]])
        >>> deviation = Deviation(live, live, torch.tensor([0.5]), torch.tensor([0.5]))
        >>> [
        ...     round(Velocity(weighting=weighting)(deviation)["log_prob"].item(), 4)
        ...     for weighting in ("uniform", "time", "huber")
        ... ]
        [-2.0, -1.0, -0.7071]

    Source: AWM, arXiv 2509.25050, and its code, which has the five weightings.
    """

    kind: Literal["velocity"] = "velocity"
    weighting: Literal["uniform", "time", "time_squared", "huber", "power"] = "uniform"
    """`w`: `l`, `t l`, `t^2 l`, `t sqrt(l)`, or `t l^p / p`; the last two hold large errors down."""
    power: float = Field(default=0.25, gt=0, le=1)
    """`p` of `weighting = "power"`."""

    def __call__(self, deviation: Deviation) -> Mapping[str, Float[Tensor, " N"]]:
        error, time = deviation.live.square().mean(1), deviation.time
        if self.weighting == "time":
            error = time * error
        elif self.weighting == "time_squared":
            error = time.square() * error
        elif self.weighting == "huber":
            error = time * ((error + _SMALLEST).sqrt() - _SMALLEST**0.5)
        elif self.weighting == "power":
            error = time * ((error + _SMALLEST) ** self.power - _SMALLEST**self.power) / self.power
        return {"log_prob": -error}
