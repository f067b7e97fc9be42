"""No clip, and a penalty on the decisions of highest covariance (KL-Cov)."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.covariance import covariance, largest, lots_of, share_of
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot


@final
class KlCov(TrustSlot):
    """`S = rho A`, less `coefficient |lp - lp_old|` at the `max(1, floor(share N))` decisions whose covariance of
    log-prob and advantage is highest.

    `N` counts the valid decisions of the whole update on all processes; where decisions tie for the last places, as
    those of answers that repeat do, the places are drawn by numbers keyed as those of `clip_cov`, so that as many are
    held as are asked for. Where the advantage is 0 the penalty stands alone: a flat group's decision is pulled back to
    where it was sampled. At `lp = lp_old` the penalty has no gradient.

    Source: KL-Cov, arXiv 2505.22617, section 4.2; share and coefficient as in its code (0.002 for its smaller models).
    """

    scope: ClassVar[str] = "batch"
    kind: Literal["kl_cov"] = "kl_cov"
    share: float = Field(default=0.0002, gt=0, le=1)
    """The share of all valid decisions that are held back."""
    coefficient: float = Field(default=1.0, gt=0)

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        spread = covariance(decisions)
        penalised = largest(
            spread, decisions.mask, share_of(self.share, decisions), decisions.reduce, lots=lots_of(decisions)
        )
        value = log_ratio.exp() * decisions.advantage
        # Few decisions are penalised, so the penalty is computed at their places only.
        places = penalised.flatten().nonzero()[:, 0]
        penalty = self.coefficient * decisions.log_ratio.flatten()[places].abs()
        value = value.flatten().index_add(0, places, -penalty).view_as(penalised)
        return Surrogate(value, torch.ones_like(decisions.mask), {"kl_cov/held_mean": decisions.share(penalised)})
