"""The geometric mean of a member's ratios (GSPO)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, final

from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.config import Config
from groupwise.objective.decisions import Decisions
from groupwise.objective.token_gradient import token_gradient, whole_member
from groupwise.statistics import Statistic


@final
class Geometric(Config):
    """`rho = exp((1/n) sum_t log r'_t)` over a member's valid decisions, broadcast; 1 for a member without any.

    With `gradient = "sequence"` the gradient goes through the mean, so all decisions share it and a credit weight would
    cancel; with `"token"` each decision keeps its own (GSPO-token).

    Example:
        The cube root of 2.

        >>> import torch
        >>> log_ratio = torch.tensor([[0.5, 2.0, 2.0]]).log()
        >>> given = Decisions.of(torch.ones(1, 3, dtype=torch.bool), log_ratio, torch.zeros(1, 3), torch.ones(1, 3))
        >>> [round(each, 3) for each in Geometric()(log_ratio, given).exp()[0].tolist()]
        [1.26, 1.26, 1.26]

    Source: arXiv 2507.18071, equations 7 and 14.
    """

    scope: ClassVar[str] = "member"
    kind: Literal["geometric"] = "geometric"
    gradient: Literal["sequence", "token"] = "sequence"

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B T"]:
        """`log rho [B, T]`."""
        level = decisions.mean(log_ratio)
        return token_gradient(level, decisions) if self.gradient == "token" else level.expand_as(log_ratio)

    def reach(self, terms: Bool[Tensor, "B T"], decisions: Decisions) -> Bool[Tensor, "B T"]:
        """The decisions that the gradient of these terms reaches with `gradient = "sequence"`: all of their member."""
        return whole_member(terms, decisions)

    def measure(self, log_level: Float[Tensor, "B T"], decisions: Decisions) -> Mapping[str, Statistic]:
        return {}
