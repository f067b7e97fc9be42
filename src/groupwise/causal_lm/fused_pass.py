"""The training pass of the plain rotary family (Llama, Qwen2, Qwen3) over a row of tokens, with the gradients of norm
and rotation written out.

Autograd keeps every intermediate of an RMS norm and goes over each of them again; for a small model that is as much
time as the products. With ``r = 1 / sqrt(mean x^2 + eps)`` and ``y = w x r``, the gradients of ``y`` against ``g``
are

    dx = r (g w - x r^2 mean(g w x)),    dw = sum g x r
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from groupwise.causal_lm.backbone import Backbone

Attend = Callable[[Any, Tensor, Tensor, Tensor], Tensor]


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        rate = torch.linalg.vecdot(x, x).div_(x.shape[-1]).add_(eps).rsqrt_().unsqueeze(-1)
        ctx.save_for_backward(x, weight, rate)
        return (x * rate).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, rate = ctx.saved_tensors
        (gradient,) = gradients
        product, width = gradient * x, x.shape[-1]
        grad_weight = rate.reshape(1, -1) @ product.reshape(-1, width)
        along = torch.matmul(product, weight).unsqueeze(-1).mul_(rate.square()).div_(-width)
        return (gradient * weight).addcmul_(x, along).mul_(rate), grad_weight.view(width), None


class _Rotation(torch.autograd.Function):
    """``x cos + roll(x) sin``; `sin` already holds the sign of the half that is negated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        (gradient,) = gradients
        return (gradient * cos).add_((gradient * sin).roll(gradient.shape[-1] // 2, -1)), None, None


def serves(backbone: Backbone) -> bool:
    """Tests that the training pass written here is this model's own: the plain rotary family, no
    dropout in attention at the moment, and whole weights: the pass calls parts of layers, which shards do not follow.
    """
    body: Any = backbone.body
    if backbone.sharded or not backbone.plain_rotary:
        return False
    return not (body.training and body.layers[0].self_attn.attention_dropout)


def states(backbone: Backbone, ids: Tensor, position: Tensor, attend: Attend) -> Tensor:
    """Computes the hidden states before the head, ``[N, H]``, with gradient.

    Args:
        backbone: a model that this `serves`.
        ids: ``[N]`` tokens.
        position: ``[N]`` position of each token.
        attend: called with the attention module, query ``[N, heads, dim]``, key and value; gives ``[N, heads, dim]``.
    """
    body: Any = backbone.body
    x = body.embed_tokens(ids)
    cos, sin = (table[0].unsqueeze(1) for table in body.rotary_emb(x, position.unsqueeze(0)))
    half = cos.shape[-1] // 2
    sin = torch.cat([-sin[..., :half], sin[..., half:]], -1)
    for layer in body.layers:
        attention, mlp = layer.self_attn, layer.mlp
        normed = _norm(x, layer.input_layernorm)
        query, key, value = (
            project(normed).view(len(x), -1, attention.head_dim)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        if hasattr(attention, "q_norm"):
            query, key = _norm(query, attention.q_norm), _norm(key, attention.k_norm)
        query, key = (_Rotation.apply(states, cos, sin) for states in (query, key))
        x = x + attention.o_proj(attend(attention, query, key, value).flatten(1))  # type: ignore[arg-type]
        normed = _norm(x, layer.post_attention_layernorm)
        x = x + mlp.down_proj(functional.silu(mlp.gate_proj(normed)) * mlp.up_proj(normed))
    return _norm(x, body.norm)


def _norm(x: Tensor, module: Any) -> Tensor:
    return _RmsNorm.apply(x, module.weight, module.variance_epsilon)  # type: ignore[no-any-return]
