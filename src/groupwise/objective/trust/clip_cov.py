"""PPO's clip, and no gradient for a few random decisions of high covariance (Clip-Cov)."""

from __future__ import annotations

from typing import ClassVar, Literal, Self, final

from pydantic import Field, model_validator
from torch import Tensor

from groupwise.config import Config
from groupwise.objective.clipping import clip_shares, clipped
from groupwise.objective.covariance import covariance, keyed_uniform, total
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.statistics import Mean


@final
class ClipCov(Config):
    """`S` of `clip`, set to 0 at decisions drawn among those whose covariance of log-prob and advantage lies in `(lower, upper)`.

    Each eligible decision is drawn by itself with probability `max(share N, 1) / eligible`, `N` the valid decisions of the whole update, so `share N` are drawn on
    average (the paper draws exactly so many). Draws are keyed by member and decision: they do not change with sharding. Decisions that the clip already holds are not eligible.

    Source: arXiv 2505.22617, section 4.2; bounds and share as in its code.
    """

    scope: ClassVar[str] = "batch"
    kind: Literal["clip_cov"] = "clip_cov"
    low: float = Field(default=0.2, gt=0)
    high: float = Field(default=0.2, gt=0)
    share: float = Field(default=0.0002, gt=0, le=1)
    """Of all valid decisions, how many lose their gradient."""
    lower: float = 1.0
    upper: float = 5.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.lower >= self.upper:
            raise ValueError(f"lower ({self.lower}) must be below upper ({self.upper})")
        return self

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        value, too_low, too_high = clipped(log_ratio, decisions.advantage, self.low, self.high)
        spread = covariance(decisions)
        eligible = decisions.mask & (spread > self.lower) & (spread < self.upper) & ~(too_low | too_high)
        number = (self.share * total(decisions, decisions.mask)).floor().clamp(min=1)
        chance = number / total(decisions, eligible).clamp(min=1)
        drawn = eligible & (keyed_uniform(decisions.member, log_ratio.shape[1], decisions.draw) < chance)
        statistics = {**clip_shares(too_low, too_high, decisions.mask), "clip_cov/drawn_mean": Mean.share(drawn, decisions.mask)}
        return Surrogate(value * ~drawn, ~(too_low | too_high | drawn), statistics)
