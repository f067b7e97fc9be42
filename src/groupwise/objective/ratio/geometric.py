"""The geometric mean of a member's ratios (GSPO)."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.member_ratio import MemberRatio


@final
class Geometric(MemberRatio):
    """`rho = exp((1/n) sum_t log r'_t)` over a member's valid decisions, broadcast; 1 for a member without any.

    With `gradient = "sequence"` the gradient goes through the mean, so all decisions share it and a credit weight would
    cancel; with `"token"` each decision keeps its own (GSPO-token).

    Example:
        The cube root of 2.

        >>> import torch
        >>> log_ratio = torch.tensor([[0.5, 2.0, 2.0]]).log()
        >>> decisions = Decisions.of(torch.ones(1, 3, dtype=torch.bool), log_ratio, torch.zeros(1, 3), torch.ones(1, 3))
        >>> [round(value, 3) for value in Geometric()(log_ratio, decisions).exp()[0].tolist()]
        [1.26, 1.26, 1.26]

    Source: arXiv 2507.18071, equations 7 and 14.
    """

    averages: ClassVar[bool] = True
    kind: Literal["geometric"] = "geometric"

    def level(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B 1"]:
        return decisions.mean(log_ratio)
