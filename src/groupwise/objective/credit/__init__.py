"""Credit: weights that spread a member's advantage over its decisions. A named chain; an empty one is uniform.

The product of the named credits is renormalised to mean one over each member's valid decisions, unless one of them is
`raw`. Masks leave decisions out and are multiplied last. Credit is detached and stands outside the trust region, so it
can never push a decision out of it.
"""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor

from groupwise.config import Config
from groupwise.objective.credit.callable import CallableCredit
from groupwise.objective.credit.gradient_adaptive import GradientAdaptive
from groupwise.objective.credit.inverse_step import InverseStep
from groupwise.objective.credit.log_decay import LogDecay
from groupwise.objective.credit.off_policy_mask import OffPolicyMask
from groupwise.objective.credit.temporal_decay import TemporalDecay
from groupwise.objective.credit.top_entropy import TopEntropy
from groupwise.objective.decisions import Decisions
from groupwise.objective.slot import CreditSlot
from groupwise.statistics import Statistic, as_float

__all__ = [
    "CallableCredit",
    "Credit",
    "GradientAdaptive",
    "InverseStep",
    "LogDecay",
    "OffPolicyMask",
    "TemporalDecay",
    "TopEntropy",
]


@final
class Credit(Config):
    """The chain: `c = n prod_i c_i / sum prod_i c_i` over valid decisions; uniform (all ones) when nothing is named."""

    scope: ClassVar[str] = "member"
    temporal_decay: TemporalDecay | None = None
    log_decay: LogDecay | None = None
    gradient_adaptive: GradientAdaptive | None = None
    inverse_step: InverseStep | None = None
    off_policy_mask: OffPolicyMask | None = None
    top_entropy: TopEntropy | None = None
    callable: CallableCredit | None = None
    """A link of your own."""

    def links(self) -> list[CreditSlot]:
        """Returns the credits of the chain, in order."""
        fields = (getattr(self, name) for name in type(self).model_fields)
        return [credit for credit in fields if credit is not None]

    @property
    def uniform(self) -> bool:
        """True when every decision gets the same credit."""
        return not self.links()

    @property
    def spreads(self) -> bool:
        """True when a credit of the chain weighs decisions against each other; a mask only leaves some out."""
        return not all(credit.masks for credit in self.links())

    @property
    def raw(self) -> bool:
        """True when a credit of the chain asked to be left unnormalised."""
        return not all(credit.normalised for credit in self.links())

    def parts(self, decisions: Decisions) -> list[Float[Tensor, "B T"]]:
        """Returns the credits of the chain by themselves, each `[B, T]`, detached, 0 where the mask is false."""
        return [credit(decisions) for credit in self.links()]

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        """Returns `c [B, T]`, detached, 0 where the mask is false."""
        return self.combine(self.parts(decisions), decisions)

    def combine(self, weights: list[Float[Tensor, "B T"]], decisions: Decisions) -> Float[Tensor, "B T"]:
        """Returns the product of the weights: of the spreading ones, renormalised to mean one, times the masks."""
        links = self.links()
        spread = self._spread(
            [weight for link, weight in zip(links, weights, strict=True) if not link.masks], decisions
        )
        for link, weight in zip(links, weights, strict=True):
            if link.masks:
                spread = spread * weight
        return spread

    def _spread(self, weights: list[Float[Tensor, "B T"]], decisions: Decisions) -> Float[Tensor, "B T"]:
        if not weights:
            return as_float(decisions.mask, decisions.log_prob.dtype)
        product = weights[0]
        for weight in weights[1:]:
            product = product * weight
        if len(weights) == 1 or self.raw:
            return product
        total = product.sum(1, keepdim=True)
        scaled = product * (decisions.count / torch.where(total > 0, total, torch.ones_like(total)))
        return torch.where(total > 0, scaled, as_float(decisions.mask, product.dtype))

    def measure(self, weights: list[Float[Tensor, "B T"]], decisions: Decisions) -> dict[str, Statistic]:
        """Returns the metrics of every credit of the chain."""
        links = zip(self.links(), weights, strict=True)
        return {
            name: statistic for credit, weight in links for name, statistic in credit.measure(weight, decisions).items()
        }
