"""The optional bound on an advantage, after scaling."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def bounded(advantage: Float[Tensor, ...], clip: float | None) -> Float[Tensor, ...]:
    """Returns `advantage` clamped to `[-clip, clip]`; as it is without a bound.

    Args:
        advantage: `[B, K]`.
        clip: the largest absolute value.

    Example:
        >>> import torch
        >>> bounded(torch.tensor([[-4.0], [1.0]]), 3.0).tolist()
        [[-3.0], [1.0]]
    """
    return advantage if clip is None else advantage.clamp(-clip, clip)
