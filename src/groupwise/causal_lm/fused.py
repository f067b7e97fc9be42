"""The decode step of the plain rotary family (Llama, Qwen2, Qwen3) in a third of the operations; equal to the model's
own to fp32 rounding.

For a small model a token costs operations, not arithmetic. Here query, key and value are one product, so are gate and
up; the residual is added inside the product that feeds it; one query attends by two batched products over a cache that
is already in their layout.

    x += W_o softmax(rot(q) rot(K)^T / sqrt(d)) V,   x += W_d (silu(W_g n(x)) * W_u n(x)),   n = RMS norm
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional
from transformers.models.llama.modeling_llama import LlamaModel
from transformers.models.qwen2.modeling_qwen2 import Qwen2Model
from transformers.models.qwen3.modeling_qwen3 import Qwen3Model

from groupwise.causal_lm import cache as cache_module
from groupwise.causal_lm.backbone import Backbone

# The products' weights are copied side by side for the time of sampling; above this the copy would cost more than it
# saves.
_MOST_PARAMETERS = 100_000_000
# Rotary tables that do not depend on how long the sequence has become.
_FIXED_ROTATIONS = ("default", "linear", "llama3", "yarn")


@final
class FusedDecoder:
    """A `groupwise.causal_lm.decode.Decoder`; arguments as `groupwise.causal_lm.decode.ModelDecoder`. Weights are read
    when it is made.
    """

    def __init__(
        self, backbone: Backbone, cache: Any, visible: Tensor | None, longest: int, repeats: int, extra: int
    ) -> None:
        body: Any = backbone.body
        config = backbone.config
        attention = body.layers[0].self_attn
        self.embedding, self.norm, self.eps = body.embed_tokens.weight, body.norm.weight, config.rms_norm_eps
        self.head_dim, self.query_heads, self.key_heads = (
            attention.head_dim,
            config.num_attention_heads,
            config.num_key_value_heads,
        )
        self.layers = [_Layer(layer, self.query_heads, self.key_heads) for layer in body.layers]
        self.seen = longest
        members = cache.layers[0].keys.shape[0] * repeats
        self.caches = []
        for layer in cache_module.full_layers(cache):
            pair = [
                cache_module.with_room(cache_module.filled(states), repeats, extra)
                for states in (layer.keys, layer.values)
            ]
            self.caches.append(
                [buffer.view(members * self.key_heads, longest + extra, self.head_dim) for buffer in pair]
            )
        positions = torch.arange(longest + extra, device=backbone.device).unsqueeze(0)
        cos, sin = (table[0].unsqueeze(1) for table in body.rotary_emb(self.embedding[:1].unsqueeze(0), positions))
        half = self.head_dim // 2
        # rotate_half negates the first half; with that sign in the table the rotation is a roll.
        self.cos, self.sin = cos, torch.cat([-sin[..., :half], sin[..., half:]], -1)
        self.bias: Tensor | None = None
        if visible is not None:
            bias = torch.zeros(len(visible), longest + extra, dtype=self.embedding.dtype, device=visible.device)
            bias[:, :longest].masked_fill_(~visible, float("-inf"))
            self.bias = bias.repeat_interleave(repeats * self.key_heads, 0).unsqueeze(1)

    @staticmethod
    def serves(backbone: Backbone) -> bool:
        """Tests that the step written here is this model's own, and that the copy of its weights is small."""
        return (
            is_plain_rotary(backbone)
            and sum(parameter.numel() for parameter in backbone.body.parameters()) <= _MOST_PARAMETERS
        )

    def step(self, token: Tensor, position: Tensor) -> Tensor:
        x = functional.embedding(token, self.embedding)
        # Without padding all members stand at the same position.
        positions = position if self.bias is not None else position[:1]
        cos, sin = self.cos[positions], self.sin[positions]
        self.seen += 1
        bias = None if self.bias is None else self.bias[:, :, : self.seen]
        for layer, (keys, values) in zip(self.layers, self.caches, strict=True):
            x = self._attend(
                layer,
                x,
                cos * layer.head_scale,
                sin * layer.head_scale.roll(self.head_dim // 2, -1),
                keys,
                values,
                bias,
            )
            gate, up = functional.linear(self._unit(x), layer.gate_up, layer.gate_up_bias).chunk(2, -1)
            x = torch.addmm(
                x if layer.down_bias is None else x + layer.down_bias, functional.silu(gate).mul_(up), layer.down
            )
        return self._unit(x).mul_(self.norm)

    def _unit(self, x: Tensor) -> Tensor:
        """Divides by the root of the mean square, ``x / sqrt(mean x^2 + eps)``: an RMS norm without its weight."""
        return x * torch.linalg.vecdot(x, x).div_(x.shape[-1]).add_(self.eps).rsqrt_().unsqueeze(-1)

    def _attend(
        self, layer: _Layer, x: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None
    ) -> Tensor:
        members, d, seen = x.shape[0], self.head_dim, self.seen
        rotated_heads = self.query_heads + self.key_heads
        qkv = functional.linear(self._unit(x), layer.qkv, layer.qkv_bias).view(
            members, rotated_heads + self.key_heads, d
        )
        qk = qkv[:, :rotated_heads]
        if layer.normed:
            qk = self._unit(qk)
        qk = torch.addcmul(qk * cos, qk.roll(d // 2, -1), sin)
        keys[:, seen - 1] = qk[:, self.query_heads :].reshape(members * self.key_heads, d)
        values[:, seen - 1] = qkv[:, rotated_heads:].reshape(members * self.key_heads, d)
        query = qk[:, : self.query_heads].reshape(members * self.key_heads, -1, d)
        past = keys[:, :seen].transpose(1, 2)
        weight = torch.bmm(query, past) if bias is None else torch.baddbmm(bias, query, past)
        out = torch.bmm(weight.softmax(-1), values[:, :seen]).view(members, -1)
        return torch.addmm(x if layer.out_bias is None else x + layer.out_bias, out, layer.out)

    def select(self, rows: Tensor) -> None:
        heads = torch.arange(self.key_heads, device=rows.device)
        places = (rows.unsqueeze(1) * self.key_heads + heads).view(-1)
        self.caches = [[buffer[places] for buffer in pair] for pair in self.caches]
        self.bias = None if self.bias is None else self.bias[places]


def is_plain_rotary(backbone: Backbone) -> bool:
    """Tests that a model is of the family written out here: its class, fp32 weights as they were loaded, no adapter, no
    autocast, full attention, no hooks.
    """
    body: Any = backbone.body
    config = backbone.config
    if type(body) not in (LlamaModel, Qwen2Model, Qwen3Model) or backbone.model is not _unwrapped_model(backbone):
        return False
    if torch.is_autocast_enabled(backbone.device.type) or body.embed_tokens.weight.dtype != torch.float32:
        return False
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        config.hidden_act == "silu"
        and rope.get("rope_type", "default") in _FIXED_ROTATIONS
        and rope.get("partial_rotary_factor", 1.0) == 1.0
        and len(cache_module.full_layers(cache_module.prompt_cache(config))) == len(body.layers)
        and all(
            type(module) is torch.nn.Linear
            for module in (body.layers[0].self_attn.q_proj, body.layers[0].mlp.down_proj)
        )
        and not any(module._forward_hooks or module._forward_pre_hooks for module in body.modules())
    )


class _Layer:
    """One decoder layer's weights in the layout of the step, a norm's weight multiplied into what follows it.

    `turned`, ``[heads, dim]``, multiplies queries and keys: their norms' weights, and the scaling of attention.
    """

    def __init__(self, layer: Any, query_heads: int, key_heads: int) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.qkv, self.qkv_bias = _joined_projections(
            layer.input_layernorm, attention.q_proj, attention.k_proj, attention.v_proj
        )
        self.gate_up, self.gate_up_bias = _joined_projections(
            layer.post_attention_layernorm, mlp.gate_proj, mlp.up_proj
        )
        self.out, self.out_bias = attention.o_proj.weight.t(), attention.o_proj.bias
        self.down, self.down_bias = mlp.down_proj.weight.t(), mlp.down_proj.bias
        self.normed = hasattr(attention, "q_norm")
        ones = self.qkv.new_ones(attention.head_dim)
        query, key = (attention.q_norm.weight, attention.k_norm.weight) if self.normed else (ones, ones)
        self.head_scale = torch.cat([(query * attention.scaling).expand(query_heads, -1), key.expand(key_heads, -1)])


def _joined_projections(norm: Any, *projections: Any) -> tuple[Tensor, Tensor | None]:
    weight = torch.cat([p.weight for p in projections]).mul_(norm.weight)
    return weight, None if projections[0].bias is None else torch.cat([p.bias for p in projections])


def _unwrapped_model(backbone: Backbone) -> Any:
    """Returns the model that the body belongs to where nothing wraps it, otherwise None."""
    return backbone.model if getattr(backbone.model, "model", None) is backbone.body else None


# The training pass of the plain rotary family (Llama, Qwen2, Qwen3) over a row of tokens, with the gradients of norm
# and rotation written out.
#
# Autograd keeps every intermediate of an RMS norm and goes over each of them again; for a small model that is as much
# time as the products. With ``r = 1 / sqrt(mean x^2 + eps)`` and ``y = w x r``, the gradients of ``y`` against ``g``
# are
#
#     dx = r (g w - x r^2 mean(g w x)),    dw = sum g x r

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
    """``x cos + roll(x) sin`` with the sign of the half that is negated already in `sin`."""

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
    """Tests that the training pass written here is this model's own: the family of `groupwise.causal_lm.fused`, no
    dropout in attention at the moment, and whole weights: the pass calls parts of layers, which shards do not follow.
    """
    body: Any = backbone.body
    if backbone.sharded or not is_plain_rotary(backbone):
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
