"""The head of a language model without its logits: log-probs, entropies and score norms from hidden states, never a ``[N, V]`` tensor for all N.

The logits of one position are ``z = W h + b``, then ``u = cap tanh(s z / cap) / temperature`` (``u = s z / temperature`` without a cap).
Everything a loss reads is a function of ``u``: with ``p = softmax(u)`` and ``y`` the token that was drawn,

    log_prob   = u_y - logsumexp(u)
    entropy    = logsumexp(u) - sum_j p_j u_j
    score_norm = sqrt(max(0, 1 - 2 p_y + sum_j p_j^2))          the norm of d log_prob / d u

Two forms. `token_scores` takes part in autograd: it walks over blocks of the vocabulary with a running maximum and sum, keeps a few numbers
a position, and computes each block once more in the backward pass. `token_scores_backward` serves where the cotangents are known
before the forward pass (the first update after sampling): it walks over positions, keeps one chunk of logits, and takes the gradient at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

FIELDS = ("log_prob", "entropy", "score_norm")
DEFAULT_MEMORY_BYTES = 192 * 2**20
# A tile of this many logits stays in the caches of a CPU core and still feeds a GPU; measured with benchmarks/head.py.
_TILE_ELEMENTS = 2**21
_BLOCK_TOKENS = 2048


@dataclass(frozen=True)
class HeadShape:
    """How a product ``W h`` becomes ``u``: the part of the head that is not a tensor.

    Args:
        temperature: sampling temperature, above 0.
        softcap: final logit cap, or None.
        scale: factor on the logits before the cap.
    """

    temperature: float
    softcap: float | None
    scale: float

    def logits(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, out: Tensor | None = None) -> Tensor:
        """``u`` of one tile, ``[n, v]``, written to `out` where that is possible."""
        inner = self.scale if self.softcap is not None else self.scale / self.temperature
        u = _product(hidden, weight.t(), dtype, alpha=inner, out=out)
        if bias is not None:
            u.add_(bias.to(dtype), alpha=inner)
        if self.softcap is not None:
            u.div_(self.softcap).tanh_().mul_(self.softcap / self.temperature)
        return u

    def slope(self, u: Tensor) -> Tensor | None:
        """``d u / d (inner z)`` where it is not one."""
        if self.softcap is None:
            return None
        return (u * (self.temperature / self.softcap)).square_().neg_().add_(1).div_(self.temperature)

    @property
    def inner(self) -> float:
        return self.scale if self.softcap is not None else self.scale / self.temperature


def _compute_dtype(*tensors: Tensor) -> torch.dtype:
    """fp64 where something is fp64, else fp32: half precision never leaves the product."""
    return torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32


def _product(a: Tensor, b: Tensor, dtype: torch.dtype, *, alpha: float = 1.0, out: Tensor | None = None, add: bool = False) -> Tensor:
    """``alpha a b`` in `dtype`; added to `out` with `add`."""
    if a.is_cuda and torch.float32 == dtype and torch.bfloat16 in (a.dtype, b.dtype):
        # Tensor cores multiply in half precision and accumulate in fp32; upcasting the factors first would be many times slower.
        product = torch.mm(a.to(torch.bfloat16), b.to(torch.bfloat16), out_dtype=torch.float32)
        product = product if alpha == 1.0 else product.mul_(alpha)
        if out is None:
            return product
        return out.add_(product) if add else out.copy_(product)
    a, b = a.to(dtype), b.to(dtype)
    if out is None:
        out = a.new_empty(a.shape[0], b.shape[1])
    return torch.addmm(out, a, b, beta=1 if add else 0, alpha=alpha, out=out)


def _blocks(total: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


class _Running:
    """Three sums over the vocabulary that stay valid while it is seen block by block: ``lse``, ``sum p u`` and ``sum p^2``."""

    def __init__(self, num: int, requires: frozenset[str], like: Tensor, dtype: torch.dtype) -> None:
        self.target_u = like.new_zeros(num, dtype=dtype)
        self.peak = like.new_full((num,), float("-inf"), dtype=dtype)
        self.total = like.new_zeros(num, dtype=dtype)
        self.mean_u = like.new_zeros(num, dtype=dtype) if "entropy" in requires else None
        self.square = like.new_zeros(num, dtype=dtype) if "score_norm" in requires else None

    def add(self, rows: slice, u: Tensor, target: Tensor, start: int, scratch: Tensor) -> None:
        """Take one tile ``u [n, v]`` of the rows `rows`, whose first column is token `start`."""
        local = target - start
        inside = (local >= 0) & (local < u.shape[1])
        picked = u.gather(1, local.clamp(0, u.shape[1] - 1).unsqueeze(1)).squeeze(1)
        self.target_u[rows] = torch.where(inside, picked, self.target_u[rows])
        peak = u.amax(1)
        p = torch.sub(u, peak.unsqueeze(1), out=scratch).exp_()
        new = torch.maximum(self.peak[rows], peak)
        keep, take = (self.peak[rows] - new).exp(), (peak - new).exp()
        old_total = self.total[rows] * keep
        total = old_total + p.sum(1) * take
        if self.mean_u is not None:
            self.mean_u[rows] = (self.mean_u[rows] * old_total + _row_dot(p, u) * take) / total
        if self.square is not None:
            self.square[rows] = (self.square[rows] * old_total.square() + _row_dot(p, p) * take.square()) / total.square()
        self.peak[rows], self.total[rows] = new, total

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
class _Coefficients:
    """``d loss / d u_j = target [j = y] + p_j (flat + entropy u_j + square p_j)``: every field's gradient has this form."""

    target: Tensor
    flat: Tensor
    entropy: Tensor | None
    square: Tensor | None

    @classmethod
    def of(cls, cotangents: Mapping[str, Tensor], running: _Running, scores: Mapping[str, Tensor]) -> _Coefficients:
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

    def gradient(self, rows: slice, u: Tensor, lse: Tensor, target: Tensor, start: int, shape: HeadShape, scratch: Tensor) -> Tensor:
        """``d loss / d (inner z)`` of one tile; overwrites `u`."""
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


class _TokenScores(torch.autograd.Function):
    """Blocks of the vocabulary outside, tiles of positions inside, so that a block's weight gradient is finished before the next begins."""

    @staticmethod
    def forward(ctx, hidden, weight, bias, target, shape, requires, tile_rows):
        dtype = _compute_dtype(hidden, weight)
        num, vocabulary = hidden.shape[0], weight.shape[0]
        block_size = min(_BLOCK_TOKENS, vocabulary)
        with torch.autocast(hidden.device.type, enabled=False):
            running = _Running(num, requires, hidden, dtype)
            tiles = hidden.new_empty(2, min(tile_rows, num) * block_size, dtype=dtype)
            for block in _blocks(vocabulary, block_size):
                w, b = weight[block].to(_held(weight, dtype)), None if bias is None else bias[block]
                for rows in _blocks(num, tile_rows):
                    u, scratch = _views(tiles, rows, block)
                    u = shape.logits(hidden[rows], w, b, dtype, out=u)
                    running.add(rows, u, target[rows], block.start, scratch)
            scores = running.scores(requires)
        ctx.save_for_backward(hidden, weight, bias, target)
        ctx.rest = (shape, requires, tile_rows, running, dtype)
        return tuple(scores.get(name) for name in FIELDS)

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients):
        hidden, weight, bias, target = ctx.saved_tensors
        shape, requires, tile_rows, running, dtype = ctx.rest
        cotangents = {name: g.to(dtype) for name, g in zip(FIELDS, gradients, strict=True) if g is not None and name in requires}
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        num, vocabulary = hidden.shape[0], weight.shape[0]
        block_size = min(_BLOCK_TOKENS, vocabulary)
        with torch.autocast(hidden.device.type, enabled=False):
            lse, coefficients = running.lse, _Coefficients.of(cotangents, running, running.scores(requires))
            grad_hidden = torch.zeros_like(hidden, dtype=dtype) if need_hidden else None
            grad_weight = torch.empty_like(weight) if need_weight else None
            grad_bias = torch.empty_like(bias) if need_bias else None
            tiles = hidden.new_empty(2, min(tile_rows, num) * block_size, dtype=dtype)
            for block in _blocks(vocabulary, block_size):
                w, b = weight[block].to(_held(weight, dtype)), None if bias is None else bias[block]
                block_weight = None if grad_weight is None else torch.zeros_like(w, dtype=dtype)
                block_bias = None if grad_bias is None else grad_bias.new_zeros(block.stop - block.start, dtype=dtype)
                for rows in _blocks(num, tile_rows):
                    u, scratch = _views(tiles, rows, block)
                    u = shape.logits(hidden[rows], w, b, dtype, out=u)
                    g = coefficients.gradient(rows, u, lse, target[rows], block.start, shape, scratch)
                    _backpropagate(g, hidden[rows], w, shape.inner, dtype, None if grad_hidden is None else grad_hidden[rows], block_weight, block_bias)
                if grad_weight is not None and block_weight is not None:
                    grad_weight[block] = block_weight
                if grad_bias is not None and block_bias is not None:
                    grad_bias[block] = block_bias
        return None if grad_hidden is None else grad_hidden.to(hidden.dtype), grad_weight, grad_bias, None, None, None, None


def _held(weight: Tensor, dtype: torch.dtype) -> torch.dtype:
    """The dtype a block of the weight is kept in: upcast once a block on a CPU, left alone where the product takes half precision."""
    return weight.dtype if weight.is_cuda else dtype


def _views(tiles: Tensor, rows: slice, block: slice) -> tuple[Tensor, Tensor]:
    num, width = rows.stop - rows.start, block.stop - block.start
    return tiles[0, : num * width].view(num, width), tiles[1, : num * width].view(num, width)


def _backpropagate(
    g: Tensor,
    hidden: Tensor,
    weight: Tensor,
    inner: float,
    dtype: torch.dtype,
    grad_hidden: Tensor | None,
    grad_weight: Tensor | None,
    grad_bias: Tensor | None,
) -> None:
    """Add one tile's part of every gradient that is wanted."""
    if grad_hidden is not None:
        _product(g, weight, dtype, alpha=inner, out=grad_hidden, add=True)
    if grad_weight is not None:
        _product(g.t(), hidden, dtype, alpha=inner, out=grad_weight, add=True)
    if grad_bias is not None:
        grad_bias.add_(g.sum(0), alpha=inner)


def _checked(hidden: Tensor, weight: Tensor, target: Tensor, requires: Iterable[str], temperature: float, softcap: float | None) -> frozenset[str]:
    requires = frozenset(requires)
    if unknown := requires - set(FIELDS):
        raise ValueError(f"requires = {sorted(unknown)}: the head computes {list(FIELDS)}; ask for a subset of these")
    if not temperature > 0:
        raise ValueError(f"temperature = {temperature}: must be above 0; write greedy = true for the most likely token")
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap = {softcap}: must be above 0, or None for no cap")
    if hidden.ndim != 2 or weight.ndim != 2 or target.shape != hidden.shape[:1] or weight.shape[1] != hidden.shape[1]:
        raise ValueError(f"hidden {tuple(hidden.shape)}, weight {tuple(weight.shape)}, target {tuple(target.shape)}: expected [N, H], [V, H] and [N]")
    return requires


def token_scores(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    requires: Iterable[str] = ("log_prob",),
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    scale: float = 1.0,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> dict[str, Tensor]:
    """Scores of drawn tokens, with gradient, in memory that does not grow with the vocabulary.

        log_prob = u_y - logsumexp(u),   u = cap tanh(scale (W h + b) / cap) / temperature

    Args:
        hidden: ``[N, H]`` hidden states before the head, any float dtype.
        weight: ``[V, H]`` weight of the head; its gradient is accumulated in fp32 (fp64) and returned in its dtype.
        target: ``[N]`` token ids, long.
        requires: names out of ``log_prob`` (nats), ``entropy`` (nats) and ``score_norm``, each with its gradient.
        bias: ``[V]`` bias of the head.
        temperature: sampling temperature, above 0.
        softcap: final logit cap (Gemma), applied before the temperature.
        scale: factor on the logits before the cap (Granite, Cohere).
        memory_bytes: bound on the working memory; the tile of positions is chosen from it.

    Returns:
        ``{name: [N]}`` in fp32, in fp64 where an input is fp64.

    Raises:
        ValueError: an unknown field, a temperature or cap that is not positive, shapes that do not fit.

    Example:
        >>> hidden, weight = torch.zeros(1, 2), torch.zeros(4, 2)
        >>> scores = token_scores(hidden, weight, torch.tensor([3]), ("log_prob", "entropy"))
        >>> round(scores["log_prob"].item(), 4), round(scores["entropy"].item(), 4)
        (-1.3863, 1.3863)

    No positions give empty scores and zero gradients. At a certain token (``p_y = 1``) the score norm is 0 and so is its gradient.
    """
    requires = _checked(hidden, weight, target, requires, temperature, softcap)
    item = _compute_dtype(hidden, weight).itemsize
    block = min(_BLOCK_TOKENS, weight.shape[0])
    tile_rows = max(1, min(_TILE_ELEMENTS, memory_bytes // (2 * item)) // block)
    outputs = _TokenScores.apply(hidden, weight, bias, target, HeadShape(temperature, softcap, scale), requires, tile_rows)
    return {name: value for name, value in zip(FIELDS, outputs, strict=True) if value is not None}


@torch.no_grad()
def token_scores_backward(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    cotangents: Mapping[str, Tensor],
    requires: Iterable[str] = ("log_prob",),
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    scale: float = 1.0,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> tuple[dict[str, Tensor], Tensor]:
    """Scores and gradients in one pass, for cotangents that are known before it; adds to ``weight.grad`` and ``bias.grad``.

        grad_hidden = d (sum_field sum_n cotangent_n field_n) / d hidden

    Args:
        hidden, weight, target, bias, temperature, softcap, scale, memory_bytes: as in `token_scores`; `hidden` is detached.
        cotangents: ``{field: [N]}``; a missing field counts as zero.
        requires: fields to return beside those of `cotangents`.

    Returns:
        The detached scores ``{name: [N]}`` and ``grad_hidden [N, H]`` in the dtype of `hidden`. A frozen weight gets no gradient.

    Raises:
        ValueError: as `token_scores`; a weight that requires a gradient but is not a leaf.

    Example:
        >>> weight = torch.zeros(2, 1, requires_grad=True)
        >>> scores, grad = token_scores_backward(torch.ones(1, 1), weight, torch.tensor([0]), {"log_prob": torch.ones(1)})
        >>> weight.grad.tolist(), grad.tolist()
        ([[0.5], [-0.5]], [[0.0]])

    It bypasses autograd's hooks on the weight: sum gradients over processes after the last micro-batch, not inside backward.
    """
    requires = _checked(hidden, weight, target, frozenset(requires) | set(cotangents), temperature, softcap)
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.requires_grad and not tensor.is_leaf:
            raise ValueError(f"{name} is computed from other tensors, so it has no .grad to add to; use token_scores")
    dtype = _compute_dtype(hidden, weight)
    num, vocabulary = hidden.shape[0], weight.shape[0]
    shape = HeadShape(temperature, softcap, scale)
    block_size = min(_BLOCK_TOKENS, vocabulary)
    chunk_rows = max(1, min(memory_bytes // (vocabulary * dtype.itemsize), num))
    grad_hidden = torch.zeros_like(hidden, dtype=dtype)
    grad_weight, finish_weight = _accumulator(weight, dtype)
    grad_bias, finish_bias = _accumulator(bias, dtype)
    scores = {name: hidden.new_empty(num, dtype=dtype) for name in FIELDS if name in requires}
    with torch.autocast(hidden.device.type, enabled=False):
        kept = [hidden.new_empty(chunk_rows * (block.stop - block.start), dtype=dtype) for block in _blocks(vocabulary, block_size)]
        scratch = hidden.new_empty(chunk_rows * block_size, dtype=dtype)
        for rows in _blocks(num, chunk_rows):
            n = rows.stop - rows.start
            h, y, everything = hidden[rows].to(_held(hidden, dtype)), target[rows], slice(0, n)
            running = _Running(n, requires, hidden, dtype)
            for buffer, block in zip(kept, _blocks(vocabulary, block_size), strict=True):
                width = block.stop - block.start
                u = shape.logits(h, weight[block], None if bias is None else bias[block], dtype, out=buffer[: n * width].view(n, width))
                running.add(everything, u, y, block.start, scratch[: n * width].view(n, width))
            chunk = running.scores(requires)
            for name, value in chunk.items():
                scores[name][rows] = value
            lse, coefficients = running.lse, _Coefficients.of({name: g[rows].to(dtype) for name, g in cotangents.items()}, running, chunk)
            for buffer, block in zip(kept, _blocks(vocabulary, block_size), strict=True):
                width = block.stop - block.start
                u = buffer[: n * width].view(n, width)
                g = coefficients.gradient(everything, u, lse, y, block.start, shape, scratch[: n * width].view(n, width))
                block_weight = None if grad_weight is None else grad_weight[block]
                _backpropagate(g, h, weight[block], shape.inner, dtype, grad_hidden[rows], block_weight, None if grad_bias is None else grad_bias[block])
        finish_weight()
        finish_bias()
    return scores, grad_hidden.to(hidden.dtype)


def _accumulator(parameter: Tensor | None, dtype: torch.dtype) -> tuple[Tensor | None, Callable[[], None]]:
    """Where a gradient is summed: ``.grad`` itself, or beside it in `dtype` where ``.grad`` is too coarse to add chunk after chunk."""
    if parameter is None or not parameter.requires_grad:
        return None, lambda: None
    if parameter.dtype == dtype:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        return parameter.grad, lambda: None
    total = torch.zeros_like(parameter, dtype=dtype)

    def finish() -> None:
        if parameter.grad is None:
            parameter.grad = total.to(parameter.dtype)
        else:
            parameter.grad.add_(total)

    return total, finish
