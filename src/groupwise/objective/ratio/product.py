"""The product of a member's ratios: the exact importance ratio of the whole member."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.objective.decisions import LOG_LIMIT, Decisions
from groupwise.objective.member_ratio import MemberRatio


@final
class Product(MemberRatio):
    """`rho = prod_t r'_t` over a member's valid decisions, clamped to `exp(+-80)` (no gradient beyond), broadcast; 1
    for a member without any.

    With `gradient = "sequence"` every decision's surrogate carries the gradient of the whole product: use it with a
    mean over decisions.

    Example:
        >>> import torch
        >>> log_ratio = torch.tensor([[0.5, 2.0, 2.0]]).log()
        >>> decisions = Decisions.of(torch.ones(1, 3, dtype=torch.bool), log_ratio, torch.zeros(1, 3), torch.ones(1, 3))
        >>> [round(value, 3) for value in Product()(log_ratio, decisions).exp()[0].tolist()]
        [2.0, 2.0, 2.0]
    """

    kind: Literal["product"] = "product"

    def level(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B 1"]:
        return decisions.masked(log_ratio).sum(1, keepdim=True).clamp(-LOG_LIMIT, LOG_LIMIT)

    def held(self, log_level: Float[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
        """Returns where the product is clamped."""
        return log_level.abs() >= LOG_LIMIT
