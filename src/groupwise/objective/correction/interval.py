"""IcePop: decisions whose mismatch lies outside an interval do not train."""

from __future__ import annotations

from typing import Literal, final

import torch
from jaxtyping import Bool, Float
from pydantic import Field, model_validator
from torch import Tensor

from groupwise.objective.slot import CorrectionSlot


@final
class Interval(CorrectionSlot):
    """`k = w 1[lower <= w <= upper]` with `w = exp(lp_old - lp_behaviour)` per decision; survivors keep `w`.

    Example:
        >>> import torch
        >>> log_weight = torch.tensor([[0.4, 1.5], [1.5, 6.0]]).log()
        >>> [
        ...     [round(value, 3) for value in row]
        ...     for row in Interval()(log_weight, torch.ones(2, 2, dtype=torch.bool)).tolist()
        ... ]
        [[0.0, 1.5], [1.5, 0.0]]

    Source: IcePop, Ling team 2025, arXiv 2510.18855.
    """

    kind: Literal["interval"] = "interval"
    lower: float = Field(default=0.5, gt=0)
    upper: float = Field(default=5.0, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Interval:
        if self.lower >= self.upper:
            raise ValueError(f"lower ({self.lower}) must be below upper ({self.upper})")
        return self

    def __call__(self, log_weight: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Returns `k [B, T]` from `lp_old - lp_behaviour`."""
        weight = log_weight.exp()
        return torch.where((weight >= self.lower) & (weight <= self.upper), weight, torch.zeros_like(weight))
