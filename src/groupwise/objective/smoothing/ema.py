"""Exponential moving average of the ratio along a member's decisions (source 000, innovation 2.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal, final

import torch
from pydantic import Field
from torch import Tensor

from groupwise.config import Config
from groupwise.objective.decisions import Decisions
from groupwise.objective.stop_gradient import stop_gradient
from groupwise.statistics import Statistic, VarianceReduction


@final
class Ema(Config):
    """Over the valid decisions of one member: `r'_1 = r_1`, `r'_t = beta r_t + (1 - beta) r'_{t-1}`.

    On-policy every `r' = 1`, and the gradient of a decision's surrogate is spread back over the decisions before it (the transpose of
    the recursion), so early decisions of a member learn from what came after them. With `detach` a decision's gradient is its own:
    `r'_t -> sg(r'_t) exp(lp_t - sg(lp_t))`. Masked decisions are passed over: they neither smooth nor are smoothed.

    Example:
        `beta = 0.9`, ratios 2, 1, 1: `r' = 2, 0.9 + 0.1 * 2, 0.9 + 0.1 * 1.1`.

        >>> ratio = torch.tensor([[2.0, 1.0, 1.0]], dtype=torch.float64)
        >>> scan(ratio, beta=0.9, first=True).tolist()
        [[2.0, 1.1, 1.01]]

    Source: innovation 2.1 of source 000. Unlike there, nothing is kept across training steps.
    """

    scope: ClassVar[str] = "member"
    kind: Literal["ema"] = "ema"
    beta: float = Field(default=0.9, gt=0, le=1)
    """Weight of the current ratio; 1 is no smoothing."""
    init: Literal["first", "one"] = "first"
    """What precedes the first decision: its own ratio, or 1."""
    detach: bool = False
    """Stop the gradient through the average."""

    def __call__(self, decisions: Decisions) -> Tensor:
        """`log r' [B, T]`, 0 where the mask is false."""
        members, width = decisions.mask.shape
        if width == 0 or self.beta == 1.0:
            return decisions.log_ratio
        ratio = decisions.log_ratio.exp()
        if decisions.packed:
            smoothed = scan(ratio, self.beta, self.init == "first").log()
        else:
            place = torch.where(decisions.mask, decisions.position, width)
            packed = ratio.new_ones(members, width + 1).scatter(1, place, ratio)[:, :width]
            smoothed = scan(packed, self.beta, self.init == "first").log().gather(1, decisions.position)
        if self.detach:
            smoothed = stop_gradient(smoothed) + decisions.log_prob - stop_gradient(decisions.log_prob)
        return decisions.masked(smoothed)

    def measure(self, decisions: Decisions, smoothed: Tensor) -> Mapping[str, Statistic]:
        """`ema/raw_weights_variance`, `ema/smoothed_weights_variance`, `ema/variance_reduction_ratio`."""
        raw = decisions.log_ratio.detach()
        return {"ema": VarianceReduction.of(raw.expm1(), smoothed.detach().expm1(), decisions.mask)}


def scan(ratio: Tensor, beta: float, first: bool) -> Tensor:
    """The recursion over `[B, T]` as two levels of small matrix products: blocks of about `sqrt(T)`, then the ends of the blocks.

    Args:
        ratio: `[B, T]`.
        beta: weight of the current entry.
        first: start from the first entry (else from 1).
    """
    members, width = ratio.shape
    start = ratio[:, :1] if first else torch.ones_like(ratio[:, :1])
    size = max(1, math.isqrt(width - 1) + 1)
    num_blocks = -(-width // size)
    padded = torch.cat([beta * ratio, ratio.new_zeros(members, num_blocks * size - width)], dim=1).view(members, num_blocks, size)
    keep = 1.0 - beta
    inside = padded @ _powers(keep, size, ratio).T
    ends = torch.cat([start, inside[:, :-1, -1]], dim=1)
    carry = ends @ _powers(keep**size, num_blocks, ratio).T
    decay = keep ** torch.arange(1, size + 1, dtype=ratio.dtype, device=ratio.device)
    return (inside + carry[:, :, None] * decay).reshape(members, num_blocks * size)[:, :width]


def _powers(base: float, size: int, like: Tensor) -> Tensor:
    """Lower triangular `[size, size]` with `base ** (row - column)`."""
    step = torch.arange(size, device=like.device)
    distance = step[:, None] - step[None, :]
    return torch.where(distance >= 0, torch.full((), base, dtype=torch.float64, device=like.device) ** distance.clamp(min=0), 0.0).to(like.dtype)
