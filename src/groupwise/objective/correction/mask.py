"""Masked importance sampling (MIS): members that the sampler made too unlike the old policy do not train."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from groupwise.config import Config
from groupwise.objective.decisions import LOG_LIMIT


@final
class Mask(Config):
    """`k_t 1[prod_t k_t <= maximum]` with `k_t = exp(lp_old - lp_behaviour)`: a member is kept or dropped whole; survivors keep `k_t`.

    Example:
        Products 0.6 and 9.

        >>> import torch
        >>> log_weight = torch.tensor([[0.4, 1.5], [1.5, 6.0]]).log()
        >>> [[round(each, 3) for each in row] for row in Mask()(log_weight, torch.ones(2, 2, dtype=torch.bool)).tolist()]
        [[0.4, 1.5], [0.0, 0.0]]

    Source: Liu et al. 2025, "When speed kills stability" (MIS).
    """

    reads: ClassVar[frozenset[str]] = frozenset({"behaviour_log_prob"})
    kind: Literal["mask"] = "mask"
    maximum: float = Field(default=2.0, gt=0)
    """The largest product over a member's decisions that still trains."""

    def __call__(self, log_weight: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """`k [B, T]` from `lp_old - lp_behaviour`."""
        product = torch.where(mask, log_weight, 0.0).sum(1, keepdim=True).clamp(-LOG_LIMIT, LOG_LIMIT).exp()
        return torch.where(product <= self.maximum, log_weight.exp(), torch.zeros_like(log_weight))
