"""Scores of sampled completions under the live model: the fields a loss reads, ``[B, T]``, with gradient or with
cotangents that are already known.

Where the model allows it, members stand side by side in one row and their common prompt is forwarded once
(`groupwise.causal_lm.packing`). Elsewhere rows are padded on the right, to the longest of the micro-batch: causal
attention never looks right, so a row's numbers do not depend on its padding. Only positions whose mask is true pass
through the head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from groupwise.causal_lm import packing
from groupwise.causal_lm.backbone import Backbone


def score(
    backbone: Backbone,
    prompts: Sequence[Sequence[int]],
    tokens: Tensor,
    mask: Tensor,
    requires: Iterable[str] = ("log_prob",),
    *,
    temperature: float = 1.0,
    pack: bool = True,
) -> dict[str, Tensor]:
    """Computes fields of sampled tokens under the live model, with gradient.

    Args:
        backbone: the model, taken apart; its mode (dropout) and the caller's autocast are left as they are.
        prompts: token ids of each member's prompt, B of them, none empty.
        tokens: ``[B, T]`` completions; anything beyond a member's last true mask is ignored.
        mask: ``[B, T]`` bool, true where a loss reads; environment tokens in between are context.
        requires: names out of ``log_prob``, ``entropy``, ``score_norm``.
        temperature: the temperature the tokens were sampled at.
        pack: side by side without padding and each distinct prompt once, where the model allows it; otherwise in padded
            rows.

    Returns:
        ``{name: [B, T]}``, zero where the mask is false.

    Raises:
        ValueError: shapes that do not fit.

    A mask without any true entry gives zeros without gradient into the model's body.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.scratch import character_tokenizer, small_model
        >>> backbone = Backbone(
        ...     small_model(SmallModelConfig(hidden_size=8, num_heads=2), character_tokenizer("ab"), seed=0)
        ... )
        >>> fields = score(
        ...     backbone,
        ...     [[3, 4]],
        ...     torch.tensor([[4, 3, 1]]),
        ...     torch.tensor([[True, False, True]]),
        ...     ["log_prob", "entropy"],
        ... )
        >>> sorted(fields), fields["log_prob"][0, 1].item(), fields["log_prob"].requires_grad
        (['entropy', 'log_prob'], 0.0, True)
    """
    rows, hidden = _hidden_at_mask(backbone, prompts, tokens, mask, pack)
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
    pack: bool = True,
) -> dict[str, Tensor]:
    """Adds the gradient of ``sum_field sum_bt cotangent_bt field_bt`` to every parameter's ``.grad``; the head takes
    its part in the forward pass.

    Args:
        cotangents: ``{field: [B, T]}``; read where the mask is true.
        backbone, prompts, tokens, mask, requires, temperature, pack: as in `score`.

    Returns:
        The detached fields ``{name: [B, T]}`` of `cotangents` and `requires`.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.scratch import character_tokenizer, small_model
        >>> backbone = Backbone(
        ...     small_model(SmallModelConfig(hidden_size=8, num_heads=2), character_tokenizer("ab"), seed=0)
        ... )
        >>> tokens, mask = torch.tensor([[4, 3, 1]]), torch.ones(1, 3, dtype=torch.bool)
        >>> weight = backbone.head.weight
        >>> (expected,) = torch.autograd.grad(score(backbone, [[3, 4]], tokens, mask)["log_prob"].sum(), weight)
        >>> fields = backward(backbone, [[3, 4]], tokens, mask, {"log_prob": torch.ones(1, 3)})
        >>> torch.allclose(weight.grad, expected, atol=1e-6), fields["log_prob"].requires_grad
        (True, False)
    """
    fields, hidden, gradient = head_backward(
        backbone, prompts, tokens, mask, cotangents, requires, temperature=temperature, pack=pack
    )
    if hidden.requires_grad:
        torch.autograd.backward([hidden], [gradient])
    return fields


def head_backward(
    backbone: Backbone,
    prompts: Sequence[Sequence[int]],
    tokens: Tensor,
    mask: Tensor,
    cotangents: Mapping[str, Tensor],
    requires: Iterable[str] = ("log_prob",),
    *,
    temperature: float = 1.0,
    pack: bool = True,
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Makes the head's part of `backward`, and leaves that of the body to the caller.

    Args:
        backbone, prompts, tokens, mask, cotangents, requires, temperature, pack: as in `backward`.

    Returns:
        the detached fields, and ``[N, H]`` hidden states with the gradient that they pass on to the body.
    """
    with torch.enable_grad():
        rows, hidden = _hidden_at_mask(backbone, prompts, tokens, mask, pack)
    target = tokens.reshape(-1)[rows]
    selected = {name: value.reshape(-1)[rows] for name, value in cotangents.items()}
    scores, gradient = backbone.scores_backward(hidden.detach(), target, selected, frozenset(requires), temperature)
    return _spread(scores, rows, mask), hidden, gradient


def _spread(values: Mapping[str, Tensor], rows: Tensor, mask: Tensor) -> dict[str, Tensor]:
    return {
        name: value.new_zeros(mask.numel()).index_put((rows,), value).view(mask.shape) for name, value in values.items()
    }


def _hidden_at_mask(
    backbone: Backbone, prompts: Sequence[Sequence[int]], tokens: Tensor, mask: Tensor, pack: bool
) -> tuple[Tensor, Tensor]:
    """Computes the flat positions of true mask entries in ``[B, T]``, and the hidden states that predict them, ``[N,
    H]``.
    """
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
    if pack and len(prompts) and packing.can_pack(backbone):
        states, place = packing.hidden(backbone, prompts, tokens, fed)
        return rows, states.index_select(0, place[member, column])
    states, starts = _padded(backbone, prompts, tokens, fed)
    return rows, states.reshape(-1, states.shape[-1]).index_select(
        0, member * states.shape[1] + starts[member] + column
    )


def _padded(backbone: Backbone, prompts: Sequence[Sequence[int]], tokens: Tensor, fed: Tensor) -> tuple[Tensor, Tensor]:
    """Forwards every row by itself: prompt, then completion, then padding. Returns hidden states ``[B, L, H]``, and the
    place of each prompt's last token.
    """
    lengths = torch.tensor([len(prompt) for prompt in prompts], dtype=torch.long, device=tokens.device)
    columns = torch.arange(int((lengths + fed).max()) if len(prompts) else 1, device=tokens.device)
    in_prompt, filled = columns < lengths.unsqueeze(1), columns < (lengths + fed).unsqueeze(1)
    ids = tokens.new_zeros(len(prompts), len(columns))
    ids[in_prompt] = torch.tensor(
        [token for prompt in prompts for token in prompt], dtype=torch.long, device=tokens.device
    )
    ids[filled & ~in_prompt] = tokens[torch.arange(tokens.shape[1], device=tokens.device) < fed.unsqueeze(1)]
    # Any token will do; a pad token would make some models ask for a mask that causal attention does not need.
    ids = torch.where(filled, ids, ids[:, :1])
    return backbone.hidden(ids, position_ids=columns.expand(len(prompts), -1), use_cache=False), lengths - 1
