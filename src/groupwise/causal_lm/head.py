"""The head of a language model without its logits: log-probs, entropies and score norms from hidden states, never a
``[N, V]`` tensor for all N.

The logits of one position are ``z = W h + b``, then ``u = cap tanh(s z / cap) / temperature`` (``u = s z /
temperature`` without a cap). Everything a loss reads is a function of ``u``: with ``p = softmax(u)`` and ``y`` the
token that was drawn,

    log_prob   = u_y - logsumexp(u)
    entropy    = logsumexp(u) - sum_j p_j u_j
    score_norm = sqrt(max(0, 1 - 2 p_y + sum_j p_j^2))          the norm of d log_prob / d u

Two forms. `token_scores` takes part in autograd: it walks over blocks of the vocabulary with a running maximum and sum,
keeps a few numbers a position, and computes each block once more in the backward pass. `token_scores_backward` serves
where the cotangents are known before the forward pass (the first update after sampling): it walks over positions, keeps
one chunk of logits, and takes the gradient at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from groupwise.causal_lm.head_tiles import tiles_of

# One tile of logits, some positions by some tokens: its computation, its part in sums over the vocabulary, and its
# gradient.
#
# The logits of one position are ``z = W h + b``, then ``u = cap tanh(s z / cap) / temperature`` (``u = s z /
# temperature`` without a cap). `groupwise.causal_lm.head` walks over the tiles; nothing here is larger than one.


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
        # In this order a large logit cancels before the logarithm is added.
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


FIELDS = ("log_prob", "entropy", "score_norm")


class _TokenScores(torch.autograd.Function):
    """The loop over blocks of the vocabulary is outside, and the loop over tiles of positions inside, so that a block's
    weight gradient is finished before the next begins.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, target, shape, requires, tile_rows):
        dtype = compute_dtype(hidden, weight)
        num, vocabulary = hidden.shape[0], weight.shape[0]
        sizes = tiles_of(hidden.device)
        block_size = min(sizes.block_tokens, vocabulary)
        with torch.autocast(hidden.device.type, enabled=False):
            running = Running(num, requires, hidden, dtype)
            tiles = hidden.new_empty(2, sizes.rows(tile_rows, num) * block_size, dtype=dtype)
            for block in blocks(vocabulary, block_size):
                w, b = weight[block].to(product_dtype(weight, dtype)), _part(bias, block)
                for rows in blocks(num, tile_rows):
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
        cotangents = {
            name: g.to(dtype) for name, g in zip(FIELDS, gradients, strict=True) if g is not None and name in requires
        }
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        num, vocabulary = hidden.shape[0], weight.shape[0]
        sizes = tiles_of(hidden.device)
        block_size = min(sizes.block_tokens, vocabulary)
        with torch.autocast(hidden.device.type, enabled=False):
            lse, coefficients = running.lse, Coefficients.of(cotangents, running, running.scores(requires))
            grad_hidden = torch.zeros_like(hidden, dtype=dtype) if need_hidden else None
            grad_weight = torch.empty_like(weight) if need_weight else None
            grad_bias = torch.empty_like(bias) if need_bias else None
            tiles = hidden.new_empty(2, sizes.rows(tile_rows, num) * block_size, dtype=dtype)
            for block in blocks(vocabulary, block_size):
                w, b = weight[block].to(product_dtype(weight, dtype)), _part(bias, block)
                block_weight = None if grad_weight is None else torch.zeros_like(w, dtype=dtype)
                block_bias = None if grad_bias is None else grad_bias.new_zeros(block.stop - block.start, dtype=dtype)
                for rows in blocks(num, tile_rows):
                    u, scratch = _views(tiles, rows, block)
                    u = shape.logits(hidden[rows], w, b, dtype, out=u)
                    g = coefficients.gradient(rows, u, lse, target[rows], block.start, shape, scratch)
                    backpropagate(
                        g,
                        hidden[rows],
                        w,
                        shape.inner,
                        dtype,
                        _part(grad_hidden, rows),
                        block_weight,
                        block_bias,
                    )
                if grad_weight is not None and block_weight is not None:
                    grad_weight[block] = block_weight
                if grad_bias is not None and block_bias is not None:
                    grad_bias[block] = block_bias
        return (
            None if grad_hidden is None else grad_hidden.to(hidden.dtype),
            grad_weight,
            grad_bias,
            None,
            None,
            None,
            None,
        )


def _views(buffers: Iterable[Tensor], rows: slice, block: slice) -> tuple[Tensor, Tensor]:
    """Returns a view of the size of a tile, `rows` by the tokens of `block`, of each of two buffers."""
    num, width = rows.stop - rows.start, block.stop - block.start
    logits, scratch = (buffer[: num * width].view(num, width) for buffer in buffers)
    return logits, scratch


def _part(tensor: Tensor | None, places: slice) -> Tensor | None:
    return None if tensor is None else tensor[places]


def _checked(
    hidden: Tensor, weight: Tensor, target: Tensor, requires: Iterable[str], temperature: float, softcap: float | None
) -> frozenset[str]:
    """Refuses unknown fields, a temperature or cap of at most 0, and shapes that do not fit; returns `requires` as a
    set.
    """
    requires = frozenset(requires)
    if unknown := requires - set(FIELDS):
        raise ValueError(f"requires = {sorted(unknown)}: the head computes {list(FIELDS)}; ask for a subset of these")
    if not temperature > 0:
        raise ValueError(f"temperature = {temperature}: must be above 0; write greedy = true for the most likely token")
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap = {softcap}: must be above 0, or None for no cap")
    if hidden.ndim != 2 or weight.ndim != 2 or target.shape != hidden.shape[:1] or weight.shape[1] != hidden.shape[1]:
        raise ValueError(
            f"hidden {tuple(hidden.shape)}, weight {tuple(weight.shape)}, target {tuple(target.shape)}: expected [N,"
            " H], [V, H] and [N]"
        )
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
    memory_bytes: int | None = None,
) -> dict[str, Tensor]:
    """Scores drawn tokens, with gradient, in memory that does not grow with the vocabulary.

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
        memory_bytes: bound on the logits that are kept at a time, from which the tile of positions is chosen; by the
            device where it is left out.

    Returns:
        ``{name: [N]}`` in fp32, in fp64 where an input is fp64.

    Raises:
        ValueError: an unknown field, a temperature or cap that is not positive, shapes that do not fit.

    Example:
        >>> hidden, weight = torch.zeros(1, 2), torch.zeros(4, 2)
        >>> scores = token_scores(hidden, weight, torch.tensor([3]), ("log_prob", "entropy"))
        >>> round(scores["log_prob"].item(), 4), round(scores["entropy"].item(), 4)
        (-1.3863, 1.3863)

    No positions give empty scores and zero gradients. At a certain token (``p_y = 1``) the score norm is 0 and so is
    its gradient.
    """
    requires = _checked(hidden, weight, target, requires, temperature, softcap)
    element_bytes = compute_dtype(hidden, weight).itemsize
    sizes = tiles_of(hidden.device)
    block = min(sizes.block_tokens, weight.shape[0])
    most_elements = (memory_bytes or sizes.memory_bytes) // (2 * element_bytes)
    tile_rows = max(1, min(sizes.tile_elements, most_elements) // block)
    outputs = _TokenScores.apply(
        hidden, weight, bias, target, HeadShape(temperature, softcap, scale), requires, tile_rows
    )
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
    memory_bytes: int | None = None,
) -> tuple[dict[str, Tensor], Tensor]:
    """Computes scores and gradients in one pass, for cotangents that are known before it; adds to ``weight.grad`` and
    ``bias.grad``.

        grad_hidden = d (sum_field sum_n cotangent_n field_n) / d hidden

    Args:
        hidden, weight, target, bias, temperature, softcap, scale, memory_bytes: as in `token_scores`; `hidden` is
            detached.
        cotangents: ``{field: [N]}``; a missing field counts as zero.
        requires: fields to return in addition to those of `cotangents`.

    Returns:
        The detached scores ``{name: [N]}`` and ``grad_hidden [N, H]`` in the dtype of `hidden`. A frozen weight gets no
        gradient.

    Raises:
        ValueError: as `token_scores`; a weight that requires a gradient but is not a leaf.

    Example:
        >>> weight = torch.zeros(2, 1, requires_grad=True)
        >>> scores, grad = token_scores_backward(
        ...     torch.ones(1, 1), weight, torch.tensor([0]), {"log_prob": torch.ones(1)}
        ... )
        >>> weight.grad.tolist(), grad.tolist()
        ([[0.5], [-0.5]], [[0.0]])

    It bypasses autograd's hooks on the weight: sum gradients over processes after the last micro-batch, not inside
    backward.
    """
    requires = _checked(hidden, weight, target, frozenset(requires) | set(cotangents), temperature, softcap)
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.requires_grad and not tensor.is_leaf:
            raise ValueError(f"{name} is computed from other tensors, so it has no .grad to add to; use token_scores")
    dtype = compute_dtype(hidden, weight)
    num, vocabulary = hidden.shape[0], weight.shape[0]
    shape = HeadShape(temperature, softcap, scale)
    sizes = tiles_of(hidden.device)
    block_size = min(sizes.block_tokens, vocabulary)
    chunk_rows = sizes.rows((memory_bytes or sizes.memory_bytes) // (vocabulary * dtype.itemsize), num)
    grad_hidden = torch.zeros_like(hidden, dtype=dtype)
    grad_weight, finish_weight = _accumulator(weight, dtype)
    grad_bias, finish_bias = _accumulator(bias, dtype)
    scores = {name: hidden.new_empty(num, dtype=dtype) for name in FIELDS if name in requires}
    with torch.autocast(hidden.device.type, enabled=False):
        logit_buffers = [
            (block, hidden.new_empty(chunk_rows * (block.stop - block.start), dtype=dtype))
            for block in blocks(vocabulary, block_size)
        ]
        scratch = hidden.new_empty(chunk_rows * block_size, dtype=dtype)
        for rows in blocks(num, chunk_rows):
            n = rows.stop - rows.start
            h, y, all_rows = hidden[rows].to(product_dtype(hidden, dtype)), target[rows], slice(0, n)
            tiles = [(block, *_views((buffer, scratch), rows, block)) for block, buffer in logit_buffers]
            running = Running(n, requires, hidden, dtype)
            for block, u, spare in tiles:
                shape.logits(h, weight[block], _part(bias, block), dtype, out=u)
                running.add(all_rows, u, y, block.start, spare)
            chunk = running.scores(requires)
            for name, value in chunk.items():
                scores[name][rows] = value
            lse = running.lse
            coefficients = Coefficients.of({name: g[rows].to(dtype) for name, g in cotangents.items()}, running, chunk)
            for block, u, spare in tiles:
                backpropagate(
                    coefficients.gradient(all_rows, u, lse, y, block.start, shape, spare),
                    h,
                    weight[block],
                    shape.inner,
                    dtype,
                    grad_hidden[rows],
                    _part(grad_weight, block),
                    _part(grad_bias, block),
                )
        finish_weight()
        finish_bias()
    return scores, grad_hidden.to(hidden.dtype)


def _accumulator(parameter: Tensor | None, dtype: torch.dtype) -> tuple[Tensor | None, Callable[[], None]]:
    """Returns the tensor in which a gradient is summed, and the function that ends the sum. The tensor is ``.grad``
    itself, or a separate one in `dtype` where ``.grad`` is too coarse to add chunk after chunk.
    """
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
