"""Truncated importance sampling (TIS)."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from groupwise.config import Config


@final
class Truncate(Config):
    """`k = min(exp(lp_old - lp_behaviour), maximum)` per decision: no decision is lost, no weight explodes.

    Example:
        >>> import torch
        >>> log_weight = torch.tensor([[0.4, 1.5], [1.5, 6.0]]).log()
        >>> [[round(each, 3) for each in row] for row in Truncate()(log_weight, torch.ones(2, 2, dtype=torch.bool)).tolist()]
        [[0.4, 1.5], [1.5, 2.0]]

    Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy training" (TIS).
    """

    reads: ClassVar[frozenset[str]] = frozenset({"behaviour_log_prob"})
    kind: Literal["truncate"] = "truncate"
    maximum: float = Field(default=2.0, gt=0)

    def __call__(self, log_weight: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """`k [B, T]` from `lp_old - lp_behaviour`."""
        return log_weight.exp().clamp(max=self.maximum)
