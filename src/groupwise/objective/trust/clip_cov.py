"""PPO's clip, and no gradient for a few random decisions of high covariance (Clip-Cov)."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from groupwise.objective.clipping import clip_shares, clipped
from groupwise.objective.covariance import covariance, largest, lots_of, share_of
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot
from groupwise.statistics import as_float


@final
class ClipCov(TrustSlot):
    """`S` of `clip`, set to 0 at `max(1, floor(share N))` decisions drawn among those whose covariance of log-prob and
    advantage lies in `(lower, upper)`.

    `N` counts the valid decisions of the whole update on all processes. Every eligible decision gets a random number
    keyed by its member's id, its place and the step; the smallest are drawn, so draws do not change with sharding.
    Decisions that the clip already holds are not eligible; where fewer are eligible than wanted, all are drawn.

    Source: Clip-Cov, arXiv 2505.22617, section 4.2; share, bounds and the wide clip are those of its authors' runs.
    """

    scope: ClassVar[str] = "batch"
    kind: Literal["clip_cov"] = "clip_cov"
    low: float = Field(default=1.0, gt=0)
    high: float = Field(default=1.0, gt=0)
    share: float = Field(default=0.0002, gt=0, le=1)
    """The share of all valid decisions that lose their gradient."""
    lower: float = 1.0
    upper: float = 5.0

    @model_validator(mode="after")
    def _ordered(self) -> ClipCov:
        if self.lower >= self.upper:
            raise ValueError(f"lower ({self.lower}) must be below upper ({self.upper})")
        return self

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        value, too_low, too_high = clipped(log_ratio, decisions, self.low, self.high)
        spread = covariance(decisions)
        eligible = decisions.mask & (spread > self.lower) & (spread < self.upper) & ~(too_low | too_high)
        places = eligible.flatten().nonzero()[:, 0]
        drawn = largest(
            -lots_of(decisions)(places), eligible, share_of(self.share, decisions), decisions.reduce, places
        )
        statistics = {**clip_shares(too_low, too_high, decisions), "clip_cov/drawn_mean": decisions.share(drawn)}
        return Surrogate(value * as_float(~drawn, value.dtype), ~(too_low | too_high | drawn), statistics)
