"""The sampler is taken to be the old policy."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.objective.slot import CorrectionSlot


@final
class NoCorrection(CorrectionSlot):
    """`k = 1`.

    Example:
        >>> import torch
        >>> log_weight = torch.tensor([[0.4, 1.5], [1.5, 6.0]]).log()
        >>> [
        ...     [round(value, 3) for value in row]
        ...     for row in NoCorrection()(log_weight, torch.ones(2, 2, dtype=torch.bool)).tolist()
        ... ]
        [[1.0, 1.0], [1.0, 1.0]]
    """

    reads: ClassVar[frozenset[str]] = frozenset()
    neutral: ClassVar[bool] = True
    kind: Literal["none"] = "none"

    def __call__(self, log_weight: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Returns `k [B, T]` from `lp_old - lp_behaviour`."""
        return torch.ones_like(log_weight)
