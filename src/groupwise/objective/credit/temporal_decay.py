"""Geometrically falling credit (source 000, innovation 2.5)."""

from __future__ import annotations

import math
from typing import ClassVar, final

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.slot import CreditSlot
from groupwise.statistics import Mean, Statistic


@final
class TemporalDecay(CreditSlot):
    """`c_t = n gamma^(t-1) / sum_s gamma^(s-1)` over a member's valid decisions; with `raw`, `c_t = gamma^(t-1)` (the
    source's `normalize = false`).

    Example:
        `gamma = 0.5`, three decisions: `gamma^(t-1)` is 1, 1/2, 1/4, mean 7/12, so the credit is 12/7, 6/7, 3/7.

        >>> import torch
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), torch.zeros(1, 3), torch.zeros(1, 3), torch.ones(1, 3)
        ... )
        >>> (7 * TemporalDecay(gamma=0.5)(decisions)).round().tolist()
        [[12.0, 6.0, 3.0]]

    Source: innovation 2.5 of source 000. A member of one decision has credit 1.
    """

    kind: ClassVar[str] = "temporal_decay"
    gamma: float = Field(default=0.95, gt=0, le=1)
    """Credit of a decision as a share of the one before it; 1 is uniform."""
    raw: bool = False
    """Leave the weights as they are: their mean is below one."""

    @property
    def normalised(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True unless `raw`."""
        return not self.raw

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        power = (decisions.position.to(decisions.log_prob.dtype) * math.log(self.gamma)).exp()
        weight = decisions.masked(power.expand_as(decisions.log_prob))
        return weight if self.raw else weight * (decisions.count / weight.sum(1, keepdim=True).clamp(min=1))

    def measure(self, weight: Float[Tensor, "B T"], decisions: Decisions) -> dict[str, Statistic]:
        """Returns means over members: `temporal_decay/weight_sum`, `first_weight`, `last_weight`."""
        # The weights fall along a member, so its first is the largest and its last that times a power of gamma.
        first_weight = weight.amax(1, keepdim=True)
        last_weight = first_weight * ((decisions.count - 1) * math.log(self.gamma)).exp()
        return {
            "temporal_decay/weight_sum": Mean.of(weight.sum(1, keepdim=True), decisions.occupied),
            "temporal_decay/first_weight": Mean.of(first_weight, decisions.occupied),
            "temporal_decay/last_weight": Mean.of(last_weight, decisions.occupied),
        }
