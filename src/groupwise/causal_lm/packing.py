"""A micro-batch as one row of tokens: each distinct prompt once, then every completion, and no padding, so that a pass
costs the tokens that are there.

All layers of a decoder but attention treat a token by itself, so the row ``[1, N]`` goes through the model as it is.
Attention gets its rectangles back through the interface that transformers has for it: prompts among themselves,
completions among their prompt's tokens and their own.

    prompts  p_1 ... p_P | completions c_1 ... c_B          c_b sees p_(prompt of b) and c_b up to itself
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from groupwise.causal_lm import fused_pass
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.cache import full_layers, prompt_cache

_NAME = "groupwise_packed"


class _Pick(torch.autograd.Function):
    """``x[places]`` of distinct places: the gradient is written, where indexing would add it up row after row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.shape = x.shape
        return x.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        return gradient.new_zeros(ctx.shape).index_copy_(0, ctx.saved_tensors[0], gradient), None


@final
class _Rectangle:
    """Rows of different lengths, padded on the right, and the same tokens side by side."""

    def __init__(self, lengths: Tensor) -> None:
        self.num_rows, self.width = len(lengths), int(lengths.max()) if len(lengths) else 0
        self.filled = torch.arange(self.width, device=lengths.device) < lengths.unsqueeze(1)
        self.places = self.filled.view(-1).nonzero().squeeze(1)

    def padded(self, packed: Tensor) -> Tensor:
        """``[n, ...]`` as ``[rows, width, ...]``, 0 where nothing is."""
        places, rest = self.num_rows * self.width, packed.shape[1:]
        whole = packed if len(packed) == places else packed.new_zeros(places, *rest).index_copy(0, self.places, packed)
        return whole.view(self.num_rows, self.width, *rest)

    def packed(self, padded: Tensor) -> Tensor:
        """``[rows, width, ...]`` as ``[n, ...]``."""
        flat = padded.flatten(0, 1)
        return flat if len(flat) == len(self.places) else _Pick.apply(flat, self.places)  # type: ignore[no-any-return]


@final
@dataclass(frozen=True)
class _Packing:
    """Where what stands in the row.

    Args:
        prompts, completions: their rectangles; completions without the last token, which is never an input.
        member: ``[B]``, the prompt of each completion.
        visible: ``[B, 1, T, L + T]`` bool, what a completion's token sees of its prompt and itself.
    """

    prompts: _Rectangle
    completions: _Rectangle
    member: Tensor
    visible: Tensor

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, **settings: Any) -> Tensor:
        """``[N, heads, dim]`` in and out."""
        split = len(self.prompts.places)
        rows = (query, key, value)
        asked, keys, values = (self.prompts.padded(row[:split]) for row in rows)
        first = _sdpa(module, asked, keys, values, None, settings)
        if len(rows[0]) == split:
            return self.prompts.packed(first)
        asked, own_keys, own_values = (self.completions.padded(row[split:]) for row in rows)
        keys, values = (
            torch.cat([of_prompt.index_select(0, self.member), own], 1)
            for of_prompt, own in ((keys, own_keys), (values, own_values))
        )
        rest = _sdpa(module, asked, keys, values, self.visible, settings)
        return torch.cat([self.prompts.packed(first), self.completions.packed(rest)])


def _sdpa(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, settings: dict[str, Any]
) -> Tensor:
    """``[rows, width, heads, dim]`` in and out."""
    return sdpa_attention_forward(
        module,
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        mask,
        is_causal=mask is None,
        **settings,
    )[0]


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packing: _Packing,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    if any(extra is not None for extra in (softcap, position_bias, s_aux)):
        raise NotImplementedError("attention with a cap, a bias or sinks is left to the model")
    asked, keys, values = (states[0].transpose(0, 1) for states in (query, key, value))
    return packing.attend(module, asked, keys, values, dropout=dropout, scaling=scaling).unsqueeze(0), None


AttentionInterface.register(_NAME, _attention)


def can_pack(backbone: Backbone) -> bool:
    """Whether the model's layers allow it: full attention everywhere, through the interface. The first time it is tried
    against the model's own padded pass.
    """
    config = backbone.config
    if not backbone.takes_position_ids or config._attn_implementation != "sdpa":
        return False
    if backbone.body.training and any(
        getattr(module, "gradient_checkpointing", False) for module in backbone.body.modules()
    ):
        return False  # recomputation in the backward pass would find the model's usual attention
    if backbone.packs is None:
        backbone.packs = bool(full_layers(prompt_cache(config))) and _agrees(backbone)
    return backbone.packs


def _agrees(backbone: Backbone) -> bool:
    size = backbone.config.vocab_size
    prompts = [[token % size for token in row] for row in ([1, 2, 3], [1, 2, 3], [4])]
    tokens = (torch.arange(9, device=backbone.device).view(3, 3) + 5) % size
    fed = torch.tensor([3, 1, 2], device=backbone.device)
    with backbone.evaluating(), torch.autocast(backbone.device.type, enabled=False):
        try:
            ours, place = hidden(backbone, prompts, tokens, fed)
        except (TypeError, ValueError, RuntimeError, NotImplementedError):
            return False
        for row, (prompt, count) in enumerate(zip(prompts, fed.tolist(), strict=True)):
            ids = torch.cat([torch.tensor(prompt, device=backbone.device), tokens[row, :count]]).unsqueeze(0)
            theirs = backbone.hidden(
                ids, position_ids=torch.arange(ids.shape[1], device=ids.device).unsqueeze(0), use_cache=False
            )[0, len(prompt) - 1 :]
            tolerance = (2e-2 if theirs.dtype.itemsize < 4 else 1e-4) * theirs.abs().max().clamp_min(1e-6)
            if not bool(((ours[place[row, : count + 1]] - theirs).abs() <= tolerance).all()):
                return False
    return True


def hidden(backbone: Backbone, prompts: Sequence[Sequence[int]], tokens: Tensor, fed: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden states of all tokens and where to find those that predict a completion.

    Args:
        backbone: a model that `can_pack`.
        prompts: token ids of each member's prompt, B of them.
        tokens: ``[B, T]`` completions.
        fed: ``[B]`` how many tokens of each are inputs.

    Returns:
        ``[N, H]``, and ``[B, 1 + max fed]`` places in it: column t predicts completion token t. Places beyond ``fed``
        are of some token.
    """
    device = tokens.device
    # Members of a group hold the same list, which is read once.
    distinct = {id(prompt): tuple(prompt) for prompt in prompts}
    number = {prompt: index for index, prompt in enumerate(dict.fromkeys(distinct.values()))}
    member = torch.tensor([number[distinct[id(prompt)]] for prompt in prompts], device=device)
    lengths = torch.tensor([len(prompt) for prompt in number], device=device)
    first, rest = _Rectangle(lengths), _Rectangle(fed)
    columns, steps = torch.arange(first.width, device=device), torch.arange(rest.width, device=device)
    in_prompt = (columns < lengths[member].unsqueeze(1)).unsqueeze(1).expand(-1, rest.width, -1)
    in_completion = (steps <= steps.unsqueeze(1)).expand(len(prompts), -1, -1)
    packing = _Packing(first, rest, member, torch.cat([in_prompt, in_completion], -1).unsqueeze(1))
    ids = torch.cat(
        [
            torch.tensor([token for prompt in number for token in prompt], device=device),
            tokens[:, : rest.width][rest.filled],
        ]
    )
    position = torch.cat(
        [columns.expand(len(number), -1)[first.filled], (lengths[member].unsqueeze(1) + steps)[rest.filled]]
    )
    if fused_pass.serves(backbone):
        states = fused_pass.states(
            backbone, ids, position, lambda module, *rows: packing.attend(module, *rows, scaling=module.scaling)
        )
    else:
        with _packed_attention(backbone.config):
            states = backbone.hidden(
                ids.unsqueeze(0), position_ids=position.unsqueeze(0), use_cache=False, packing=packing
            )[0]
    place = torch.zeros_like(rest.filled, dtype=torch.long)
    place[rest.filled] = torch.arange(len(first.places), len(ids), device=device)
    return states, torch.cat([(lengths.cumsum(0) - 1)[member].unsqueeze(1), place], 1)


@contextmanager
def _packed_attention(config: Any) -> Iterator[None]:
    before = config._attn_implementation
    config._attn_implementation = _NAME
    try:
        yield
    finally:
        config._attn_implementation = before
