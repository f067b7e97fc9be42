"""Sampled completions under the live model: the fields a loss reads, ``[B, T]``, with gradient or with cotangents that are already known.

Rows are padded on the right, to the longest of the micro-batch: causal attention never looks right, so a row's numbers do not depend on its padding.
Only positions whose mask is true pass through the head. Where members share a prompt and the model allows it, the prompt is forwarded once: its keys and
values are copied to the members inside the graph, so their gradients add up in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.cache import filled, full_layers, prompt_cache

# Sharing costs a mask and a second pass; below this share of tokens saved it is not worth it.
_SHARE_FROM = 0.1


def score(
    backbone: Backbone,
    prompts: Sequence[Sequence[int]],
    tokens: Tensor,
    mask: Tensor,
    requires: Iterable[str] = ("log_prob",),
    *,
    temperature: float = 1.0,
    share_prompts: bool | None = None,
) -> dict[str, Tensor]:
    """Fields of sampled tokens under the live model, with gradient.

    Args:
        backbone: the model, taken apart; its mode (dropout) and the caller's autocast are left as they are.
        prompts: token ids of each member's prompt, B of them, none empty.
        tokens: ``[B, T]`` completions; anything beyond a member's last true mask is ignored.
        mask: ``[B, T]`` bool, true where a loss reads; environment tokens in between are context.
        requires: names out of ``log_prob``, ``entropy``, ``score_norm``.
        temperature: the temperature the tokens were sampled at.
        share_prompts: forward members' common prompts once; where omitted, when that saves enough and the model allows it.

    Returns:
        ``{name: [B, T]}``, zero where the mask is false.

    Raises:
        ValueError: shapes that do not fit.

    A mask without any true entry gives zeros without gradient into the model's body.
    """
    rows, hidden = _hidden_at_mask(backbone, prompts, tokens, mask, share_prompts)
    target = tokens.reshape(-1)[rows]
    return _spread(backbone.scores(hidden, target, frozenset(requires), temperature), rows, mask)


def backward(
    backbone: Backbone,
    prompts: Sequence[Sequence[int]],
    tokens: Tensor,
    mask: Tensor,
    cotangents: Mapping[str, Tensor],
    requires: Iterable[str] = ("log_prob",),
    *,
    temperature: float = 1.0,
    share_prompts: bool | None = None,
) -> dict[str, Tensor]:
    """Add the gradient of ``sum_field sum_bt cotangent_bt field_bt`` to every parameter's ``.grad``; the head takes its part in the forward pass.

    Args:
        cotangents: ``{field: [B, T]}``; read where the mask is true.
        backbone, prompts, tokens, mask, requires, temperature, share_prompts: as in `score`.

    Returns:
        The detached fields ``{name: [B, T]}`` of `cotangents` and `requires`.
    """
    with torch.enable_grad():
        rows, hidden = _hidden_at_mask(backbone, prompts, tokens, mask, share_prompts)
    target = tokens.reshape(-1)[rows]
    selected = {name: value.reshape(-1)[rows] for name, value in cotangents.items()}
    scores, gradient = backbone.scores_backward(hidden.detach(), target, selected, frozenset(requires), temperature)
    if hidden.requires_grad:
        torch.autograd.backward([hidden], [gradient])
    return _spread(scores, rows, mask)


def _spread(values: Mapping[str, Tensor], rows: Tensor, mask: Tensor) -> dict[str, Tensor]:
    return {name: value.new_zeros(mask.numel()).index_put((rows,), value).view(mask.shape) for name, value in values.items()}


def _hidden_at_mask(backbone: Backbone, prompts: Sequence[Sequence[int]], tokens: Tensor, mask: Tensor, share: bool | None) -> tuple[Tensor, Tensor]:
    """Flat positions of true mask entries in ``[B, T]``, and the hidden states that predict them, ``[N, H]``."""
    if tokens.shape != mask.shape or mask.ndim != 2 or len(prompts) != mask.shape[0] or mask.dtype != torch.bool:
        raise ValueError(f"{len(prompts)} prompts, tokens {tuple(tokens.shape)}, mask {tuple(mask.shape)} {mask.dtype}: expected B, [B, T] and bool [B, T]")
    if any(len(prompt) == 0 for prompt in prompts):
        raise ValueError("a prompt has no tokens, so nothing predicts its first completion token; give every prompt at least one")
    rows = mask.reshape(-1).nonzero().squeeze(1)
    columns = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    # The last token is never an input; neither is anything a member has after the last position that is read.
    longest = (mask * columns).amax(1).tolist() if mask.numel() else [0] * len(prompts)
    unique = list(dict.fromkeys(tuple(prompt) for prompt in prompts))
    if share is None:
        share = _saved_share(prompts, unique, longest) >= _SHARE_FROM
    if share and max(longest, default=0) > 1 and len(unique) < len(prompts) and _can_share(backbone):
        states = _shared(backbone, prompts, unique, tokens, int(max(longest)))
        return rows, states.reshape(-1, states.shape[-1])[rows if states.shape[1] == mask.shape[1] else _renumber(rows, mask.shape[1], states.shape[1])]
    return rows, _plain(backbone, prompts, tokens, [int(n) for n in longest], rows)


def _renumber(rows: Tensor, old_width: int, new_width: int) -> Tensor:
    return rows // old_width * new_width + rows % old_width


def _plain(backbone: Backbone, prompts: Sequence[Sequence[int]], tokens: Tensor, longest: Sequence[int], rows: Tensor) -> Tensor:
    """Every row whole: prompt, then completion, then padding."""
    width = max((len(prompt) + max(n - 1, 0) for prompt, n in zip(prompts, longest, strict=True)), default=1)
    listed = tokens.tolist()
    ids = [[*prompt, *row[: max(n - 1, 0)]] for prompt, row, n in zip(prompts, listed, longest, strict=True)]
    # Any token will do; a pad token would make some models ask for a mask that causal attention does not need.
    padded = torch.tensor([row + row[:1] * (width - len(row)) for row in ids], device=tokens.device)
    position = torch.arange(width, device=tokens.device).unsqueeze(0)
    hidden = backbone.hidden(padded, position_ids=position.expand(len(prompts), -1), use_cache=False)
    starts = torch.tensor([len(prompt) - 1 for prompt in prompts], device=tokens.device)
    member, column = rows // tokens.shape[1], rows % tokens.shape[1]
    return hidden.reshape(-1, hidden.shape[-1]).index_select(0, member * width + starts[member] + column)


def _saved_share(prompts: Sequence[Sequence[int]], unique: Sequence[Sequence[int]], longest: Sequence[int]) -> float:
    whole = len(prompts) * max((len(p) + n for p, n in zip(prompts, longest, strict=True)), default=1)
    parted = len(unique) * max(map(len, unique), default=0) + len(prompts) * max(longest, default=0)
    return 1 - parted / max(whole, 1)


def _can_share(backbone: Backbone) -> bool:
    """Full attention in every layer with a mask we can write, and keys and values that stay in the graph."""
    config = backbone.config
    if backbone.body.training and any(getattr(module, "gradient_checkpointing", False) for module in backbone.body.modules()):
        return False  # recomputation would write the cache twice, so transformers switches it off
    if not backbone.takes_position_ids or config._attn_implementation != "sdpa":
        return False
    return bool(full_layers(prompt_cache(config)))


def _shared(backbone: Backbone, prompts: Sequence[Sequence[int]], unique: Sequence[tuple[int, ...]], tokens: Tensor, width: int) -> Tensor:
    """Hidden states that predict the first `width` completion tokens, ``[B, width, H]``, each distinct prompt forwarded once."""
    device = tokens.device
    number = {prompt: index for index, prompt in enumerate(unique)}
    member = torch.tensor([number[tuple(prompt)] for prompt in prompts], device=device)
    lengths = torch.tensor([len(prompt) for prompt in unique], device=device)
    longest = max(map(len, unique))
    ids = torch.tensor([list(prompt) + list(prompt[:1]) * (longest - len(prompt)) for prompt in unique], device=device)
    columns = torch.arange(longest, device=device)
    cache = prompt_cache(backbone.config)
    first = backbone.forward(ids, position_ids=columns.expand(len(unique), -1), past_key_values=cache, use_cache=True).last_hidden_state
    first = first[torch.arange(len(unique), device=device), lengths - 1].index_select(0, member).unsqueeze(1)
    for layer in full_layers(cache):
        layer.keys, layer.values = filled(layer.keys).index_select(0, member), filled(layer.values).index_select(0, member)
    steps = torch.arange(width - 1, device=device)
    # A completion token sees its prompt up to the prompt's own length, and the completion up to itself.
    in_prompt = (columns < lengths[member].unsqueeze(1))[:, None, None, :].expand(-1, 1, width - 1, -1)
    in_completion = (steps <= steps.unsqueeze(1))[None, None].expand(len(prompts), 1, -1, -1)
    rest = backbone.forward(
        tokens[:, : width - 1],
        position_ids=lengths[member].unsqueeze(1) + steps,
        attention_mask=torch.cat([in_prompt, in_completion], -1),
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    return torch.cat([first, rest], 1)
