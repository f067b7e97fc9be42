"""The sampler is taken to be the old policy."""

from __future__ import annotations

from typing import Literal, final

import torch
from torch import Tensor

from groupwise.config import Config


@final
class NoCorrection(Config):
    """`k = 1`."""

    kind: Literal["none"] = "none"

    def __call__(self, log_weight: Tensor, mask: Tensor) -> Tensor:
        """`k [B, T]` from `lp_old - lp_behaviour`."""
        return torch.ones_like(log_weight)
