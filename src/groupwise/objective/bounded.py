"""The optional bound on an advantage, after scaling."""

from __future__ import annotations

from torch import Tensor


def bounded(advantage: Tensor, clip: float | None) -> Tensor:
    """`advantage` clamped to `[-clip, clip]`; as it is without a bound."""
    return advantage if clip is None else advantage.clamp(-clip, clip)
