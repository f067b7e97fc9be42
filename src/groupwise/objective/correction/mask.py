"""Whole members that the sampler made too unlike the old policy do not train: masked importance sampling (MIS),
geometric rejection (Geo-RS).
"""

from __future__ import annotations

from typing import Literal, final

import torch
from jaxtyping import Bool, Float
from pydantic import Field, model_validator
from torch import Tensor

from groupwise.objective.behaviour_weight import decision_weight, mean_weight, member_weight
from groupwise.objective.slot import CorrectionSlot


@final
class Mask(CorrectionSlot):
    """`k_t = v_t 1[minimum <= m <= maximum]`: a member is kept or dropped whole, by `m`, the product of its `w_t =
    exp(lp_old - lp_behaviour)` or their mean.

    What survivors weigh, `v_t`, is a choice of its own: each decision's `w_t`, the member's product, or 1.

    Example:
        Products 0.6 and 9.

        >>> import torch
        >>> log_weight, mask = torch.tensor([[0.4, 1.5], [1.5, 6.0]]).log(), torch.ones(2, 2, dtype=torch.bool)
        >>> [[round(k, 3) for k in row] for row in Mask()(log_weight, mask).tolist()]
        [[0.4, 1.5], [0.0, 0.0]]
        >>> [[round(k, 3) for k in row] for row in Mask(weight="product")(log_weight, mask).tolist()]
        [[0.6, 0.6], [0.0, 0.0]]

        Geometric means .775 and 3.

        >>> [
        ...     [round(k, 3) for k in row]
        ...     for row in Mask(by="mean", minimum=0.8, maximum=4.0, weight="one")(log_weight, mask).tolist()
        ... ]
        [[0.0, 0.0], [1.0, 1.0]]

    Source: Liu et al. 2025, "When speed kills stability" (its Seq-MIS has `weight = "product"`); the mean: verl's
    rollout correction (Geo-RS).
    """

    kind: Literal["mask"] = "mask"
    maximum: float = Field(default=2.0, gt=0)
    """The largest `m` that still trains."""
    minimum: float = Field(default=0.0, ge=0)
    """The smallest; 0 is none."""
    by: Literal["product", "mean"] = "product"
    """The product over a member's decisions, which a long member leaves 1 by its length alone, or their geometric mean.
    """
    weight: Literal["decision", "product", "one"] = "decision"
    """The weight of survivors."""
    truncate: float | None = Field(default=None, gt=0)
    """The largest weight of a survivor: rejection and truncated importance sampling together."""

    @model_validator(mode="after")
    def _ordered(self) -> Mask:
        if self.minimum >= self.maximum:
            raise ValueError(f"minimum ({self.minimum}) must be below maximum ({self.maximum})")
        return self

    def __call__(self, log_weight: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Returns `k [B, T]` from `lp_old - lp_behaviour`."""
        product = member_weight(log_weight, mask)
        measure = product if self.by == "product" else mean_weight(log_weight, mask)
        weight = {
            "decision": lambda: decision_weight(log_weight),
            "product": lambda: product.expand_as(log_weight),
            "one": lambda: torch.ones_like(log_weight),
        }
        survivors = weight[self.weight]() if self.truncate is None else weight[self.weight]().clamp(max=self.truncate)
        is_kept = (measure >= self.minimum) & (measure <= self.maximum)
        return torch.where(is_kept, survivors, 0.0)
