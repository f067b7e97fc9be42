"""One tile of logits, some positions by some tokens: its computation, its part in sums over the vocabulary, and its
gradient.

The logits of one position are ``z = W h + b``, then ``u = cap tanh(s z / cap) / temperature`` (``u = s z /
temperature`` without a cap). `groupwise.causal_lm.head` walks over the tiles; nothing here is larger than one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class HeadShape:
    """The parts of the head that are not tensors: from a product ``W h`` they make ``u``.

    Args:
        temperature: sampling temperature, above 0.
        softcap: final logit cap, or None.
        scale: factor on the logits before the cap.
    """

    temperature: float
    softcap: float | None
    scale: float

    def logits(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, out: Tensor | None = None
    ) -> Tensor:
        """Computes ``u`` of one tile, ``[n, v]``, written to `out` where that is possible."""
        u = product(hidden, weight.t(), dtype, alpha=self.inner, out=out)
        if bias is not None:
            u.add_(bias.to(dtype), alpha=self.inner)
        if self.softcap is not None:
            u.div_(self.softcap).tanh_().mul_(self.softcap / self.temperature)
        return u

    def slope(self, u: Tensor) -> Tensor | None:
        """Computes ``d u / d (inner z)``; None where it is 1."""
        if self.softcap is None:
            return None
        return (u * (self.temperature / self.softcap)).square_().neg_().add_(1).div_(self.temperature)

    @property
    def inner(self) -> float:
        """The factor on ``z`` inside the cap, or the only one."""
        return self.scale if self.softcap is not None else self.scale / self.temperature


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """Returns fp64 where a tensor is fp64, else fp32: half precision never leaves the product."""
    return torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32


def product(
    a: Tensor, b: Tensor, dtype: torch.dtype, *, alpha: float = 1.0, out: Tensor | None = None, add: bool = False
) -> Tensor:
    """Computes ``alpha a b`` in `dtype`; added to `out` with `add`."""
    if a.is_cuda and torch.float32 == dtype and torch.bfloat16 in (a.dtype, b.dtype):
        # Tensor cores multiply in half precision and accumulate in fp32; upcasting the factors first would be many
        # times slower.
        scaled_product = torch.mm(a.to(torch.bfloat16), b.to(torch.bfloat16), out_dtype=torch.float32)
        scaled_product = scaled_product if alpha == 1.0 else scaled_product.mul_(alpha)
        if out is None:
            return scaled_product
        return out.add_(scaled_product) if add else out.copy_(scaled_product)
    a, b = a.to(dtype), b.to(dtype)
    if out is None:
        out = a.new_empty(a.shape[0], b.shape[1])
    return torch.addmm(out, a, b, beta=1 if add else 0, alpha=alpha, out=out)


def blocks(total: int, size: int) -> Iterator[slice]:
    """Cuts `total` places into slices of `size`, the last one shorter."""
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


class Running:
    """Three sums over the vocabulary that stay valid while it is read block by block: ``lse``, ``sum p u`` and ``sum
    p^2``.
    """

    def __init__(self, num: int, requires: frozenset[str], like: Tensor, dtype: torch.dtype) -> None:
        self.target_u = like.new_zeros(num, dtype=dtype)
        self.peak = like.new_full((num,), float("-inf"), dtype=dtype)
        self.total = like.new_zeros(num, dtype=dtype)
        self.mean_u = like.new_zeros(num, dtype=dtype) if "entropy" in requires else None
        self.square = like.new_zeros(num, dtype=dtype) if "score_norm" in requires else None

    def add(self, rows: slice, u: Tensor, target: Tensor, start: int, scratch: Tensor) -> None:
        """Takes one tile ``u [n, v]`` of the rows `rows`, whose first column is token `start`."""
        local = target - start
        inside = (local >= 0) & (local < u.shape[1])
        picked = u.gather(1, local.clamp(0, u.shape[1] - 1).unsqueeze(1)).squeeze(1)
        self.target_u[rows] = torch.where(inside, picked, self.target_u[rows])
        peak = u.amax(1)
        p = torch.sub(u, peak.unsqueeze(1), out=scratch).exp_()
        new_peak = torch.maximum(self.peak[rows], peak)
        old_factor, tile_factor = (self.peak[rows] - new_peak).exp(), (peak - new_peak).exp()
        old_total = self.total[rows] * old_factor
        total = old_total + p.sum(1) * tile_factor
        if self.mean_u is not None:
            self.mean_u[rows] = (self.mean_u[rows] * old_total + _row_dot(p, u) * tile_factor) / total
        if self.square is not None:
            self.square[rows] = (
                self.square[rows] * old_total.square() + _row_dot(p, p) * tile_factor.square()
            ) / total.square()
        self.peak[rows], self.total[rows] = new_peak, total

    @property
    def lse(self) -> Tensor:
        return self.peak + self.total.log()

    def scores(self, requires: frozenset[str]) -> dict[str, Tensor]:
        # In this order a large logit cancels before the logarithm is added to it.
        log_prob = (self.target_u - self.peak) - self.total.log()
        out = {}
        if "log_prob" in requires:
            out["log_prob"] = log_prob
        if self.mean_u is not None:
            out["entropy"] = self.lse - self.mean_u
        if self.square is not None:
            out["score_norm"] = (1 - 2 * log_prob.exp() + self.square).clamp_min(0).sqrt()
        return out


def _row_dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.vecdot(a, b, dim=1)


@dataclass(frozen=True)
class Coefficients:
    """``d loss / d u_j = target [j = y] + p_j (flat + entropy u_j + square p_j)``: every field's gradient has this
    form.
    """

    target: Tensor
    flat: Tensor
    entropy: Tensor | None
    square: Tensor | None

    @classmethod
    def of(cls, cotangents: Mapping[str, Tensor], running: Running, scores: Mapping[str, Tensor]) -> Coefficients:
        lse = running.lse
        target, flat = torch.zeros_like(lse), torch.zeros_like(lse)
        entropy = square = None
        if (g := cotangents.get("log_prob")) is not None:
            target, flat = target + g, flat - g
        if (g := cotangents.get("entropy")) is not None and running.mean_u is not None:
            # -p_j (log p_j + H), and log p_j + H = u_j - sum p u
            entropy = -g.to(lse.dtype)
            flat = flat + g * running.mean_u
        if (g := cotangents.get("score_norm")) is not None and running.square is not None:
            norm = scores["score_norm"]
            # The norm has no derivative at zero (a certain token); zero is its least subgradient.
            slope = torch.where(norm > 0, g / norm.clamp_min(torch.finfo(norm.dtype).tiny), torch.zeros_like(norm))
            p_y = (running.target_u - lse).exp()
            target = target - slope * p_y
            flat = flat + slope * (p_y - running.square)
            square = slope
        return cls(target, flat, entropy, square)

    def gradient(
        self, rows: slice, u: Tensor, lse: Tensor, target: Tensor, start: int, shape: HeadShape, scratch: Tensor
    ) -> Tensor:
        """Computes ``d loss / d (inner z)`` of one tile; overwrites `u`."""
        slope = shape.slope(u)
        p = torch.sub(u, lse[rows].unsqueeze(1), out=scratch).exp_()
        flat = self.flat[rows].unsqueeze(1)
        if self.entropy is None and self.square is None:
            gradient = p.mul_(flat)
        else:
            factor = u.mul_(self.entropy[rows].unsqueeze(1)) if self.entropy is not None else u.zero_()
            if self.square is not None:
                factor.addcmul_(p, self.square[rows].unsqueeze(1))
            gradient = factor.add_(flat).mul_(p)
        local = target - start
        inside = (local >= 0) & (local < u.shape[1])
        values = torch.where(inside, self.target[rows], torch.zeros_like(lse[rows]))
        gradient.scatter_add_(1, local.clamp(0, u.shape[1] - 1).unsqueeze(1), values.unsqueeze(1))
        return gradient if slope is None else gradient.mul_(slope)


def product_dtype(weight: Tensor, dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype in which a block of the weight is multiplied: upcast once a block on a CPU, the weight's own
    where the product takes half precision.
    """
    return weight.dtype if weight.is_cuda else dtype


def backpropagate(
    g: Tensor,
    hidden: Tensor,
    weight: Tensor,
    inner: float,
    dtype: torch.dtype,
    grad_hidden: Tensor | None,
    grad_weight: Tensor | None,
    grad_bias: Tensor | None,
) -> None:
    """Adds one tile's part to every gradient that is not None."""
    if grad_hidden is not None:
        product(g, weight, dtype, alpha=inner, out=grad_hidden, add=True)
    if grad_weight is not None:
        product(g.t(), hidden, dtype, alpha=inner, out=grad_weight, add=True)
    if grad_bias is not None:
        grad_bias.add_(g.sum(0), alpha=inner)
