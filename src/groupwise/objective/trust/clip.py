"""PPO's clip, with one bound each way (clip-higher)."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.clipping import clip_shares, clipped
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot


@final
class Clip(TrustSlot):
    """`S = min(rho A, clip(rho, 1 - low, 1 + high) A)`.

    The gradient is 0 where `A > 0` and `rho > 1 + high`, and where `A < 0` and `rho < 1 - low`; a bad decision that
    grew is always corrected. At exactly `1 + high` or `1 - low` the gradient flows.

    Example:
        >>> import torch
        >>> log_ratio = torch.tensor([[1.5, 0.5, 1.5]]).log()
        >>> advantage = torch.tensor([[1.0, -1.0, -1.0]])
        >>> decisions = Decisions.of(torch.ones(1, 3, dtype=torch.bool), log_ratio, torch.zeros(1, 3), advantage)
        >>> Clip()(log_ratio, decisions).value.tolist()
        [[1.2000000476837158, -0.800000011920929, -1.5]]

    Source: arXiv 1707.06347, equation 7; two bounds: DAPO, arXiv 2503.14476, equation 10.
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["clip"] = "clip"
    low: float = Field(default=0.2, gt=0)
    """The distance from 1 by which the ratio of a bad decision may fall."""
    high: float = Field(default=0.2, gt=0)
    """The distance from 1 by which the ratio of a good decision may rise."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        value, too_low, too_high = clipped(log_ratio, decisions, self.low, self.high)
        return Surrogate(value, ~(too_low | too_high), clip_shares(too_low, too_high, decisions))
