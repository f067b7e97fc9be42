"""A smooth gate instead of a clip (SAPO)."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot

_DEAD_BELOW = 0.01


@final
class Sapo(TrustSlot):
    """`S = (4 / tau) sigmoid(tau (rho - 1)) A`, with `tau` by the advantage's sign.

    The gradient weight by `rho` is `4 p (1 - p)` with `p = sigmoid(tau (rho - 1))`: one at `rho = 1`, falling smoothly
    to zero on both sides, faster for bad decisions. Weights below 0.01 count as without gradient in
    `zero_gradient_fraction`.

    Example:
        At `rho = 1` the sigmoid is 1/2, so `S = 2 A / tau`: its value is arbitrary up to a constant, its gradient is
        `A`.

    Source: arXiv 2511.20347, section 3.
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["sapo"] = "sapo"
    tau_pos: float = Field(default=1.0, gt=0)
    """Temperature for decisions with `A > 0`."""
    tau_neg: float = Field(default=1.05, gt=0)
    """Temperature for the others."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        advantage = decisions.advantage
        tau = torch.where(decisions.good, log_ratio.new_full((), self.tau_pos), log_ratio.new_full((), self.tau_neg))
        gate = torch.sigmoid(tau * (log_ratio.exp() - 1))
        slope = (4 * gate * (1 - gate)).detach()
        return Surrogate(
            4 / tau * gate * advantage, slope >= _DEAD_BELOW, {"sapo/gradient_weight_mean": decisions.average(slope)}
        )
