"""Credit that falls with the logarithm of the position, whatever the member's length."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.slot import CreditSlot
from groupwise.statistics import Statistic


@final
class LogDecay(CreditSlot):
    """`c_t ~ exp(-a ln(1 + (t-1)/tau) / ln(1 + (n-1)/tau))` over a member's valid decisions, normalised to mean one.

    The last decision weighs `exp(-a)` of the first at every length. A member of one decision has credit 1.

    Example:
        `exp(-ln(1 + (t-1)) / ln 3)` is 1, 0.532, 0.368, normalised to mean one.

        >>> import torch
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), torch.zeros(1, 3), torch.zeros(1, 3), torch.ones(1, 3)
        ... )
        >>> [round(value, 3) for value in LogDecay(a=1.0, tau=1.0)(decisions)[0].tolist()]
        [1.579, 0.84, 0.581]

    Source: a variant of innovation 2.5 of source 000.
    """

    kind: ClassVar[str] = "log_decay"
    a: float = Field(default=2.0, ge=0)
    """The fall of the credit from the first decision to the last, in nats."""
    tau: float = Field(default=10.0, gt=0)
    """Positions over which it begins to fall."""

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        position = decisions.position.to(decisions.log_prob.dtype)
        span = torch.log1p((decisions.count - 1) / self.tau)
        share = torch.log1p(position / self.tau) / torch.where(span > 0, span, torch.ones_like(span))
        weight = decisions.masked((-self.a * share).exp())
        return weight * (decisions.count / weight.sum(1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny))

    def measure(self, weight: Float[Tensor, "B T"], decisions: Decisions) -> dict[str, Statistic]:
        return {}
