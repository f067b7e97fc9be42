"""Truncated importance sampling (TIS), of decisions or of whole members."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Bool, Float
from pydantic import Field, model_validator
from torch import Tensor

from groupwise.objective.behaviour_weight import decision_weight, member_weight
from groupwise.objective.slot import CorrectionSlot


@final
class Truncate(CorrectionSlot):
    """`k = min(max(w, minimum), maximum)` with `w = exp(lp_old - lp_behaviour)` of each decision, or their product over
    the member: no decision is lost.

    Example:
        >>> import torch
        >>> log_weight, mask = torch.tensor([[0.4, 1.5], [1.5, 6.0]]).log(), torch.ones(2, 2, dtype=torch.bool)
        >>> [[round(k, 3) for k in row] for row in Truncate()(log_weight, mask).tolist()]
        [[0.4, 1.5], [1.5, 2.0]]

        Products 0.6 and 9, which every decision of the member carries.

        >>> [[round(k, 3) for k in row] for row in Truncate(level="member")(log_weight, mask).tolist()]
        [[0.6, 0.6], [2.0, 2.0]]

    Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy training" (TIS); over members:
    Liu et al. 2025 (Seq-TIS).
    """

    kind: Literal["truncate"] = "truncate"
    maximum: float = Field(default=2.0, gt=0)
    minimum: float = Field(default=0.0, ge=0)
    """A lower bound; 0 is none."""
    level: Literal["decision", "member"] = "decision"
    """Each decision's own weight, or the product over its member, clamped to `exp(+-80)`."""

    @model_validator(mode="after")
    def _ordered(self) -> Truncate:
        if self.minimum >= self.maximum:
            raise ValueError(f"minimum ({self.minimum}) must be below maximum ({self.maximum})")
        return self

    def __call__(self, log_weight: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Returns `k [B, T]` from `lp_old - lp_behaviour`."""
        weight = (
            decision_weight(log_weight)
            if self.level == "decision"
            else member_weight(log_weight, mask).expand_as(log_weight)
        )
        return weight.clamp(self.minimum, self.maximum)
