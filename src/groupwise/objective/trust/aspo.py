"""Asymmetric importance sampling (ASPO): good decisions are weighted by the *inverse* ratio."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch
from pydantic import Field
from torch import Tensor

from groupwise.config import Config
from groupwise.objective.clipping import clip_shares, clipped
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.stop_gradient import stop_gradient
from groupwise.statistics import Mean


@final
class Aspo(Config):
    """For `A > 0`: `S = sg(min(1 / rho, bound)) A lp`, 0 where `rho > 1 + high`. For `A < 0`: `clip`, and at least `bound A` (dual clip).

    Rare good decisions, whose ratio is below one, are pushed more instead of less. The cap on `1 / rho` is soft: it bounds the weight and keeps the gradient.

    Source: arXiv 2510.06062, section 4.
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["aspo"] = "aspo"
    low: float = Field(default=0.2, gt=0)
    high: float = Field(default=0.2, gt=0)
    bound: float = Field(default=3.0, gt=1)
    """Cap on the weight of a good decision, floor of a bad one's surrogate."""

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        advantage = decisions.advantage
        value, too_low, too_high = clipped(log_ratio, advantage, self.low, self.high)
        floored = (advantage < 0) & (log_ratio.exp() > self.bound)
        bad = torch.where(floored, self.bound * advantage, value)
        inverse = stop_gradient((-log_ratio).exp()).clamp(max=self.bound)
        good = inverse * advantage * decisions.log_prob * ~too_high
        statistics = {**clip_shares(too_low, too_high, decisions.mask), "aspo/capped_mean": Mean.share((advantage > 0) & (inverse >= self.bound), decisions.mask)}
        return Surrogate(torch.where(advantage > 0, good, bad), ~(too_low | too_high | floored), statistics)
