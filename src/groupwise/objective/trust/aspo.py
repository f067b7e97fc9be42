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
    """For `A > 0`: `S = sg(min(1 / rho, bound)) A pi / sg(pi)` where `rho <= 1 + high`, the constant `A / (1 + high)` beyond.

    For `A < 0`: `clip`, but `bound A pi / sg(pi)` where `rho > bound`. Rare good decisions, whose ratio is below one, are pushed
    more instead of less. The bound is soft on both sides: it limits a weight and keeps its gradient, unlike a dual clip's.

    Example:
        `A = 1`: ratio 1/2 weighs 2, ratio 1/10 weighs 3, ratio 1.1 weighs 1/1.1, ratio 2 is held.

        >>> ratio = torch.tensor([[0.5, 0.1, 1.1, 2.0]], dtype=torch.float64)
        >>> given = Decisions(torch.ones(1, 4, dtype=torch.bool), ratio.log(), 0 * ratio, 0 * ratio + 1)
        >>> [round(value, 6) for value in Aspo()(ratio.log(), given).value[0].tolist()]
        [2.0, 3.0, 0.909091, 0.833333]

    Source: arXiv 2510.06062, section 4, and its authors' code (Archer2.0), for the soft bound on both signs.
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["aspo"] = "aspo"
    low: float = Field(default=0.2, gt=0)
    """How far the ratio of a bad decision may fall."""
    high: float = Field(default=0.2, gt=0)
    """How far the ratio of a good decision may rise."""
    bound: float = Field(default=3.0, gt=1)
    """The largest weight."""

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        advantage = decisions.advantage
        value, too_low, too_high = clipped(log_ratio, advantage, self.low, self.high)
        own = (decisions.log_prob - stop_gradient(decisions.log_prob)).exp()
        inverse = stop_gradient(-log_ratio).exp()
        good = torch.where(too_high, advantage / (1 + self.high), inverse.clamp(max=self.bound) * own * advantage)
        capped_bad = (advantage < 0) & (log_ratio.exp() > self.bound)
        bad = torch.where(capped_bad, self.bound * own * advantage, value)
        capped = capped_bad | ((advantage > 0) & (inverse > self.bound))
        statistics = {**clip_shares(too_low, too_high, decisions.mask), "aspo/capped_mean": Mean.share(capped, decisions.mask)}
        return Surrogate(torch.where(advantage > 0, good, bad), ~(too_low | too_high), statistics)
