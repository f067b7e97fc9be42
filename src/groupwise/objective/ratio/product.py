"""The product of a member's ratios: the exact importance ratio of the whole member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, final

from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.config import Config
from groupwise.objective.decisions import LOG_LIMIT, Decisions
from groupwise.objective.token_gradient import token_gradient, whole_member
from groupwise.statistics import Statistic


@final
class Product(Config):
    """`rho = prod_t r'_t` over a member's valid decisions, clamped to `exp(+-80)` (no gradient beyond), broadcast; 1
    for a member without any.

    With `gradient = "sequence"` every decision's surrogate carries the gradient of the whole product: use it with a
    mean over decisions.

    Example:
        >>> import torch
        >>> log_ratio = torch.tensor([[0.5, 2.0, 2.0]]).log()
        >>> given = Decisions.of(torch.ones(1, 3, dtype=torch.bool), log_ratio, torch.zeros(1, 3), torch.ones(1, 3))
        >>> [round(each, 3) for each in Product()(log_ratio, given).exp()[0].tolist()]
        [2.0, 2.0, 2.0]
    """

    scope: ClassVar[str] = "member"
    kind: Literal["product"] = "product"
    gradient: Literal["sequence", "token"] = "sequence"

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B T"]:
        """`log rho [B, T]`."""
        level = decisions.masked(log_ratio).sum(1, keepdim=True).clamp(-LOG_LIMIT, LOG_LIMIT)
        return token_gradient(level, decisions) if self.gradient == "token" else level.expand_as(log_ratio)

    def reach(self, terms: Bool[Tensor, "B T"], decisions: Decisions) -> Bool[Tensor, "B T"]:
        """The decisions that the gradient of these terms reaches with `gradient = "sequence"`: all of their member."""
        return whole_member(terms, decisions)

    def measure(self, log_level: Float[Tensor, "B T"], decisions: Decisions) -> Mapping[str, Statistic]:
        return {}
