"""Scores of sampled completions under the live model: the fields a loss reads, ``[B, T]``, with gradient or with
cotangents that are already known.

Where the model allows it, members stand side by side in one row and their common prompt is forwarded once
(`groupwise.causal_lm.scoring`). Elsewhere rows are padded on the right, to the longest of the micro-batch: causal
attention never looks right, so a row's numbers do not depend on its padding. Only positions whose mask is true pass
through the head.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from groupwise.causal_lm import fused_pass
from groupwise.causal_lm.backbone import Backbone


@final
@dataclass(frozen=True)
class ScoringInputs:
    """Sampled completions whose fields are computed under the live model.

    Args:
        prompts: token ids of each member's prompt, B of them, none empty.
        tokens: ``[B, T]`` completions; anything beyond a member's last true mask is ignored.
        mask: ``[B, T]`` bool, true where a loss reads; environment tokens in between are context.
        requires: names out of ``log_prob``, ``entropy``, ``score_norm``.
        temperature: the temperature the tokens were sampled at.
    """

    prompts: Sequence[Sequence[int]]
    tokens: Tensor
    mask: Tensor
    requires: Collection[str] = ("log_prob",)
    temperature: float = 1.0


def score(backbone: Backbone, inputs: ScoringInputs, *, pack: bool = True) -> dict[str, Tensor]:
    """Computes fields of sampled tokens under the live model, with gradient.

    Args:
        backbone: the model, taken apart; its mode (dropout) and the caller's autocast are left as they are.
        inputs: the completions.
        pack: side by side without padding and each distinct prompt once, where the model allows it; otherwise in padded
            rows.

    Returns:
        ``{name: [B, T]}``, zero where the mask is false.

    Raises:
        ValueError: shapes that do not fit.

    A mask without any true entry gives zeros without gradient into the model's body.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.small import character_tokenizer, small_model
        >>> backbone = Backbone(
        ...     small_model(SmallModelConfig(hidden_size=8, num_heads=2), character_tokenizer("ab"), seed=0)
        ... )
        >>> tokens, mask = torch.tensor([[4, 3, 1]]), torch.tensor([[True, False, True]])
        >>> fields = score(backbone, ScoringInputs([[3, 4]], tokens, mask, ["log_prob", "entropy"]))
        >>> sorted(fields), fields["log_prob"][0, 1].item(), fields["log_prob"].requires_grad
        (['entropy', 'log_prob'], 0.0, True)
    """
    rows, hidden = _hidden_at_mask(backbone, inputs, pack)
    target = inputs.tokens.reshape(-1)[rows]
    fields = backbone.scores(hidden, target, frozenset(inputs.requires), inputs.temperature)
    return _spread(fields, rows, inputs.mask)


def backward(
    backbone: Backbone, inputs: ScoringInputs, cotangents: Mapping[str, Tensor], *, pack: bool = True
) -> dict[str, Tensor]:
    """Adds the gradient of ``sum_field sum_bt cotangent_bt field_bt`` to every parameter's ``.grad``; the head takes
    its part in the forward pass.

    Args:
        cotangents: ``{field: [B, T]}``; read where the mask is true.
        backbone, inputs, pack: as in `score`.

    Returns:
        The detached fields ``{name: [B, T]}`` of `cotangents` and `requires`.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.small import character_tokenizer, small_model
        >>> backbone = Backbone(
        ...     small_model(SmallModelConfig(hidden_size=8, num_heads=2), character_tokenizer("ab"), seed=0)
        ... )
        >>> inputs = ScoringInputs([[3, 4]], torch.tensor([[4, 3, 1]]), torch.ones(1, 3, dtype=torch.bool))
        >>> weight = backbone.head.weight
        >>> (expected,) = torch.autograd.grad(score(backbone, inputs)["log_prob"].sum(), weight)
        >>> fields = backward(backbone, inputs, {"log_prob": torch.ones(1, 3)})
        >>> torch.allclose(weight.grad, expected, atol=1e-6), fields["log_prob"].requires_grad
        (True, False)
    """
    fields, hidden, gradient = head_backward(backbone, inputs, cotangents, pack=pack)
    if hidden.requires_grad:
        torch.autograd.backward([hidden], [gradient])
    return fields


def head_backward(
    backbone: Backbone, inputs: ScoringInputs, cotangents: Mapping[str, Tensor], *, pack: bool = True
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Makes the head's part of `backward`, and leaves that of the body to the caller; arguments: see `backward`.

    Returns:
        the detached fields, and ``[N, H]`` hidden states with the gradient that they pass on to the body.
    """
    with torch.enable_grad():
        rows, hidden = _hidden_at_mask(backbone, inputs, pack)
    target = inputs.tokens.reshape(-1)[rows]
    selected = {name: value.reshape(-1)[rows] for name, value in cotangents.items()}
    scores, gradient = backbone.scores_backward(
        hidden.detach(), target, selected, frozenset(inputs.requires), inputs.temperature
    )
    return _spread(scores, rows, inputs.mask), hidden, gradient


def _spread(values: Mapping[str, Tensor], rows: Tensor, mask: Tensor) -> dict[str, Tensor]:
    return {
        name: value.new_zeros(mask.numel()).index_put((rows,), value).view(mask.shape) for name, value in values.items()
    }


def _hidden_at_mask(backbone: Backbone, inputs: ScoringInputs, pack: bool) -> tuple[Tensor, Tensor]:
    """Returns the flat positions of true mask entries in ``[B, T]``, and the hidden states that predict them, ``[N,
    H]``.
    """
    prompts, tokens, mask = inputs.prompts, inputs.tokens, inputs.mask
    if tokens.shape != mask.shape or mask.ndim != 2 or len(prompts) != mask.shape[0] or mask.dtype != torch.bool:
        raise ValueError(
            f"{len(prompts)} prompts, tokens {tuple(tokens.shape)}, mask {tuple(mask.shape)} {mask.dtype}: expected B,"
            " [B, T] and bool [B, T]"
        )
    if any(len(prompt) == 0 for prompt in prompts):
        raise ValueError(
            "a prompt has no tokens, so nothing predicts its first completion token; give every prompt at least one"
        )
    rows = mask.reshape(-1).nonzero().squeeze(1)
    member, column = rows // max(mask.shape[1], 1), rows % max(mask.shape[1], 1)
    # The last token is never an input; neither is anything a member has after the last position that is read.
    fed = (
        (mask * torch.arange(mask.shape[1], device=mask.device)).amax(1)
        if mask.numel()
        else mask.new_zeros(len(prompts), dtype=torch.long)
    )
    if pack and len(prompts) and can_pack(backbone):
        states, place = hidden(backbone, prompts, tokens, fed)
        return rows, states.index_select(0, place[member, column])
    states, starts = _padded(backbone, prompts, tokens, fed)
    return rows, states.reshape(-1, states.shape[-1]).index_select(
        0, member * states.shape[1] + starts[member] + column
    )


def _padded(backbone: Backbone, prompts: Sequence[Sequence[int]], tokens: Tensor, fed: Tensor) -> tuple[Tensor, Tensor]:
    """Forwards every row separately: prompt, then completion, then padding. Returns hidden states ``[B, L, H]``, and
    the place of each prompt's last token.
    """
    lengths = torch.tensor([len(prompt) for prompt in prompts], dtype=torch.long, device=tokens.device)
    columns = torch.arange(int((lengths + fed).max()) if len(prompts) else 1, device=tokens.device)
    in_prompt, filled = columns < lengths.unsqueeze(1), columns < (lengths + fed).unsqueeze(1)
    ids = tokens.new_zeros(len(prompts), len(columns))
    ids[in_prompt] = torch.tensor(
        [token for prompt in prompts for token in prompt], dtype=torch.long, device=tokens.device
    )
    ids[filled & ~in_prompt] = tokens[torch.arange(tokens.shape[1], device=tokens.device) < fed.unsqueeze(1)]
    # Any token will do here. A pad token would make some models ask for a mask, which causal attention does not need.
    ids = torch.where(filled, ids, ids[:, :1])
    return backbone.hidden(ids, position_ids=columns.expand(len(prompts), -1), use_cache=False), lengths - 1


# A micro-batch as one row of tokens: each distinct prompt once, then every completion, and no padding, so that a pass
# costs the tokens that are there.
#
# All layers of a decoder but attention treat a token by itself, so the row ``[1, N]`` goes through the model as it
# is. Attention gets its rectangles back through the interface that transformers has for it: prompts among themselves,
# completions among their prompt's tokens and their own.
#
#     prompts  p_1 ... p_P | completions c_1 ... c_B          c_b sees p_(prompt of b) and c_b up to itself

_NAME = "groupwise_packed"


class _Pick(torch.autograd.Function):
    """``x[places]`` for distinct places. The gradient is written directly, where indexing would add it up row after
    row.
    """

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
    """Rows of different lengths in two forms: padded on the right, and as one row of tokens without padding."""

    def __init__(self, lengths: Tensor) -> None:
        self.num_rows, self.width = len(lengths), int(lengths.max()) if len(lengths) else 0
        self.filled = torch.arange(self.width, device=lengths.device) < lengths.unsqueeze(1)
        self.places = self.filled.view(-1).nonzero().squeeze(1)

    def padded(self, packed: Tensor) -> Tensor:
        """Returns ``[n, ...]`` as ``[rows, width, ...]``, 0 in the padding."""
        places, trailing_shape = self.num_rows * self.width, packed.shape[1:]
        padded_rows = (
            packed
            if len(packed) == places
            else packed.new_zeros(places, *trailing_shape).index_copy(0, self.places, packed)
        )
        return padded_rows.view(self.num_rows, self.width, *trailing_shape)

    def packed(self, padded: Tensor) -> Tensor:
        """Returns ``[rows, width, ...]`` without its padding, ``[n, ...]``."""
        flat = padded.flatten(0, 1)
        return flat if len(flat) == len(self.places) else _Pick.apply(flat, self.places)  # type: ignore[no-any-return]


@final
@dataclass(frozen=True)
class _Packing:
    """The layout of a packed row: where its prompts and completions are, and which tokens a completion sees.

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
        """Attends within prompts, and from completions to their prompt and themselves; all ``[N, heads, dim]``."""
        split = len(self.prompts.places)
        rows = (query, key, value)
        queries, keys, values = (self.prompts.padded(row[:split]) for row in rows)
        prompt_output = _sdpa(module, queries, keys, values, None, settings)
        if len(rows[0]) == split:
            return self.prompts.packed(prompt_output)
        queries, own_keys, own_values = (self.completions.padded(row[split:]) for row in rows)
        keys, values = (
            torch.cat([prompt_states.index_select(0, self.member), completion_states], 1)
            for prompt_states, completion_states in ((keys, own_keys), (values, own_values))
        )
        completion_output = _sdpa(module, queries, keys, values, self.visible, settings)
        return torch.cat([self.prompts.packed(prompt_output), self.completions.packed(completion_output)])


def _sdpa(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, settings: dict[str, Any]
) -> Tensor:
    """Calls the attention of transformers on ``[rows, width, heads, dim]``, and returns the same shape."""
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
    queries, keys, values = (states[0].transpose(0, 1) for states in (query, key, value))
    return packing.attend(module, queries, keys, values, dropout=dropout, scaling=scaling).unsqueeze(0), None


AttentionInterface.register(_NAME, _attention)


def can_pack(backbone: Backbone) -> bool:
    """Tests that the model's layers allow packing: full attention in every layer, through the interface of
    transformers. The first call compares a packed pass with the model's own padded pass.
    """
    config = backbone.config
    if not backbone.takes_position_ids or config._attn_implementation != "sdpa":
        return False
    if backbone.body.training and any(
        getattr(module, "gradient_checkpointing", False) for module in backbone.body.modules()
    ):
        return False  # recomputation in the backward pass would find the model's usual attention
    if backbone.packs is None:
        backbone.packs = backbone.keeps_every_token and _agrees(backbone)
    return backbone.packs


def _agrees(backbone: Backbone) -> bool:
    size = backbone.config.vocab_size
    prompts = [[token % size for token in row] for row in ([1, 2, 3], [1, 2, 3], [4])]
    tokens = (torch.arange(9, device=backbone.device).view(3, 3) + 5) % size
    fed = torch.tensor([3, 1, 2], device=backbone.device)
    with backbone.evaluating(), torch.autocast(backbone.device.type, enabled=False):
        try:
            packed_states, place = hidden(backbone, prompts, tokens, fed)
        except (TypeError, ValueError, RuntimeError, NotImplementedError):
            return False
        for row, (prompt, count) in enumerate(zip(prompts, fed.tolist(), strict=True)):
            ids = torch.cat([torch.tensor(prompt, device=backbone.device), tokens[row, :count]]).unsqueeze(0)
            padded_states = backbone.hidden(
                ids, position_ids=torch.arange(ids.shape[1], device=ids.device).unsqueeze(0), use_cache=False
            )[0, len(prompt) - 1 :]
            tolerance = (2e-2 if padded_states.dtype.itemsize < 4 else 1e-4) * padded_states.abs().max().clamp_min(1e-6)
            if not bool(((packed_states[place[row, : count + 1]] - padded_states).abs() <= tolerance).all()):
                return False
    return True


def hidden(backbone: Backbone, prompts: Sequence[Sequence[int]], tokens: Tensor, fed: Tensor) -> tuple[Tensor, Tensor]:
    """Computes the hidden states of all tokens, and the places of those that predict a completion.

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
    place_of = {prompt: index for index, prompt in enumerate(dict.fromkeys(distinct.values()))}
    member = torch.tensor([place_of[distinct[id(prompt)]] for prompt in prompts], device=device)
    lengths = torch.tensor([len(prompt) for prompt in place_of], device=device)
    prompt_rows, completion_rows = _Rectangle(lengths), _Rectangle(fed)
    columns, steps = torch.arange(prompt_rows.width, device=device), torch.arange(completion_rows.width, device=device)
    in_prompt = (columns < lengths[member].unsqueeze(1)).unsqueeze(1).expand(-1, completion_rows.width, -1)
    in_completion = (steps <= steps.unsqueeze(1)).expand(len(prompts), -1, -1)
    packing = _Packing(prompt_rows, completion_rows, member, torch.cat([in_prompt, in_completion], -1).unsqueeze(1))
    ids = torch.cat(
        [
            torch.tensor([token for prompt in place_of for token in prompt], device=device),
            tokens[:, : completion_rows.width][completion_rows.filled],
        ]
    )
    position = torch.cat(
        [
            columns.expand(len(place_of), -1)[prompt_rows.filled],
            (lengths[member].unsqueeze(1) + steps)[completion_rows.filled],
        ]
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
    place = torch.zeros_like(completion_rows.filled, dtype=torch.long)
    place[completion_rows.filled] = torch.arange(len(prompt_rows.places), len(ids), device=device)
    return states, torch.cat([(lengths.cumsum(0) - 1)[member].unsqueeze(1), place], 1)


@contextmanager
def _packed_attention(config: Any) -> Iterator[None]:
    previous = config._attn_implementation
    config._attn_implementation = _NAME
    try:
        yield
    finally:
        config._attn_implementation = previous
