"""The geometric mean of clipped ratios (GMPO): a trust region over a whole member."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.clipping import clip_shares
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot


@final
class Gmpo(TrustSlot):
    """`S = exp((1/n) sum_t d'_t) A`, with `d' = min(d, high)` for `A > 0` and `max(d, -low)` for `A < 0`.

    A one-sided clip of each log-ratio, then the geometric mean: a clipped decision carries no gradient, the others
    share the member's. It takes one advantage a member, token ratios, no smoothing and a uniform credit.

    Source: arXiv 2507.20673, equation 4 and algorithm 1 (bounds `exp(+-0.4)`).
    """

    scope: ClassVar[str] = "member"
    whole_member: ClassVar[bool] = True
    per_decision: ClassVar[str | None] = "log-ratio"
    kind: Literal["gmpo"] = "gmpo"
    low: float = Field(default=0.4, gt=0)
    """Nats that a bad decision's log-prob may fall."""
    high: float = Field(default=0.4, gt=0)
    """Nats that a good decision's log-prob may rise."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        too_high = decisions.good & (log_ratio > self.high)
        too_low = decisions.bad & (log_ratio < -self.low)
        bound = torch.where(too_low, log_ratio.new_full((), -self.low), log_ratio.new_full((), self.high))
        mean = decisions.mean(torch.where(too_high | too_low, bound, log_ratio))
        return Surrogate(
            mean.exp() * decisions.advantage, ~(too_high | too_low), clip_shares(too_low, too_high, decisions)
        )
