"""PPO's clip with a floor under the surrogate of bad decisions."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.clipping import clip_shares, clipped
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot


@final
class DualClip(TrustSlot):
    """`clip`, and for `A < 0` at least `bound A`: `S = max(min(rho A, clip(rho) A), bound A)`.

    The gradient is 0 where the clip's is, and for bad decisions whose ratio grew beyond `bound`. At exactly `bound` it
    flows, as at the edges of the clip; automatic differentiation of the `max` would halve it there.

    Example:
        Good, held at 1.2; bad and grown, corrected; beyond 3, held.

        >>> import torch
        >>> log_ratio, advantage = torch.tensor([[1.5, 2.0, 4.0]]).log(), torch.tensor([[1.0, -1.0, -1.0]])
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), log_ratio - 1, torch.full((1, 3), -1.0), advantage
        ... )
        >>> surrogate = DualClip()(log_ratio, decisions)
        >>> [round(value, 3) for value in surrogate.value[0].tolist()], surrogate.alive[0].tolist()
        ([1.2, -2.0, -3.0], [False, True, False])

    Source: arXiv 1912.09729, equation 5; verl's vanilla loss (bound 3).
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["dual_clip"] = "dual_clip"
    low: float = Field(default=0.2, gt=0)
    high: float = Field(default=0.2, gt=0)
    bound: float = Field(default=3.0, gt=1)
    """The largest ratio at which a bad decision is still corrected."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        value, too_low, too_high = clipped(log_ratio, decisions, self.low, self.high)
        floored = decisions.bad & (log_ratio.detach() > math.log(self.bound))
        value = torch.where(floored, self.bound * decisions.advantage, value)
        statistics = {**clip_shares(too_low, too_high, decisions), "clip_ratio/dual_mean": decisions.share(floored)}
        return Surrogate(value, ~(too_low | too_high | floored), statistics)
