"""The pessimistic clip that several trust regions are made of."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from groupwise.statistics import Mean, Statistic


def clipped(log_ratio: Tensor, advantage: Tensor, low: Tensor | float, high: Tensor | float) -> tuple[Tensor, Tensor, Tensor]:
    """`min(rho A, clip(rho, 1 - low, 1 + high) A)` with the places where it is clipped.

    Returns:
        `S [B, T]`; where `A < 0` and `rho < 1 - low`; where `A > 0` and `rho > 1 + high`. Those two carry no gradient.
    """
    ratio = log_ratio.exp()
    too_low = (advantage < 0) & (ratio < 1 - low)
    too_high = (advantage > 0) & (ratio > 1 + high)
    bound = torch.where(too_low, 1 - low, 1 + high) if isinstance(low, Tensor) or isinstance(high, Tensor) else _bound(ratio, too_low, low, high)
    return torch.where(too_low | too_high, bound, ratio) * advantage, too_low, too_high


def _bound(ratio: Tensor, too_low: Tensor, low: float, high: float) -> Tensor:
    return torch.where(too_low, ratio.new_full((), 1 - low), ratio.new_full((), 1 + high))


def clip_shares(too_low: Tensor, too_high: Tensor, mask: Tensor) -> Mapping[str, Statistic]:
    """TRL's names: shares of the valid decisions that are clipped."""
    return {
        "clip_ratio/low_mean": Mean.share(too_low, mask),
        "clip_ratio/high_mean": Mean.share(too_high, mask),
        "clip_ratio/region_mean": Mean.share(too_low | too_high, mask),
    }
