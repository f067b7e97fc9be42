"""Asymmetric importance sampling (ASPO): good decisions are weighted by the *inverse* ratio."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.clipping import clip_shares
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot
from groupwise.objective.stop_gradient import stop_gradient

_SMALLEST = 1e-300


@final
class Aspo(TrustSlot):
    """For `A > 0`: `S = sg(min(1 / rho, bound)) A pi / sg(pi)` where `rho <= 1 + high`, the constant `A / (1 + high)`
    beyond.

    For `A < 0`: `clip`, but `bound A pi / sg(pi)` where `rho > bound`. Rare good decisions, whose ratio is below one,
    are pushed more instead of less. The bound is soft on both sides: it limits a weight and keeps its gradient, unlike
    a dual clip's.

    Example:
        `A = 1`: ratio 1/2 weighs 2, ratio 1/10 weighs 3, ratio 1.1 weighs 1/1.1, ratio 2 is held.

        >>> ratio = torch.tensor([[0.5, 0.1, 1.1, 2.0]], dtype=torch.float64)
        >>> decisions = Decisions.of(torch.ones(1, 4, dtype=torch.bool), ratio.log(), 0 * ratio, 0 * ratio + 1)
        >>> [round(value, 6) for value in Aspo()(ratio.log(), decisions).value[0].tolist()]
        [2.0, 3.0, 0.909091, 0.833333]

    Source: arXiv 2510.06062, section 4, and its authors' code (Archer2.0), for the soft bound on both signs.
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["aspo"] = "aspo"
    low: float = Field(default=0.2, gt=0)
    """The distance from 1 by which the ratio of a bad decision may fall."""
    high: float = Field(default=0.2, gt=0)
    """The distance from 1 by which the ratio of a good decision may rise."""
    bound: float = Field(default=3.0, gt=1)
    """The largest weight."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        advantage, log_level = decisions.advantage, stop_gradient(log_ratio)
        good = decisions.good
        too_high = good & (log_level > math.log1p(self.high))
        too_low = decisions.bad & (log_level < math.log(max(1 - self.low, _SMALLEST)))
        clipped = too_high | too_low
        power = torch.where(good, -log_level, log_level)
        capped = (power > math.log(self.bound)) & ~clipped & (advantage != 0)
        edge = torch.where(good, log_ratio.new_full((), 1 / (1 + self.high)), log_ratio.new_full((), 1 - self.low))
        weight = torch.where(clipped, edge, power.clamp(max=math.log(self.bound)).exp())
        # The weight is multiplied by a unit that carries the gradient: that of the decision's own log-prob where the
        # weight is capped or inverted, and that of the ratio elsewhere.
        direct = good | capped
        carrier = torch.where(direct, decisions.log_prob, log_ratio)
        unit = torch.where(clipped, torch.ones_like(carrier), 1 + (carrier - stop_gradient(carrier)))
        statistics = {**clip_shares(too_low, too_high, decisions), "aspo/capped_mean": decisions.share(capped)}
        return Surrogate(weight * advantage * unit, ~clipped, statistics, direct)
