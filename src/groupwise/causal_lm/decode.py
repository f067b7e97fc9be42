"""One decoding step for every member of a batch: the hidden states of the next position from the cache of all positions
before it.

Two ways with one result: through the model itself, for any family, or `groupwise.causal_lm.fused` for the plain rotary
family, whose cost for a small model is not arithmetic but the number of operations a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, final

import torch
from torch import Tensor

from groupwise.causal_lm import cache as kv
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.fused import FusedDecoder
from groupwise.causal_lm.packing import can_pack

_LEAST_SAVED = 256
"""Prompt tokens that a common beginning has to save: a second pass costs a small model as much as many tokens."""


class Decoder(Protocol):
    """Holds the cache of the members in the batch."""

    def step(self, token: Tensor, position: Tensor) -> Tensor:
        """Feeds ``token [b]`` at ``position [b]`` and returns the hidden states before the head, ``[b, H]``."""
        ...

    def select(self, rows: Tensor) -> None:
        """Keeps the members `rows`, in that order."""
        ...


@final
class ModelDecoder:
    """The model's own forward pass with a cache of transformers.

    Args:
        backbone: the model.
        cache: the prompts' cache; taken over.
        visible: ``[P, longest]`` bool, false where a prompt is padded; None without padding.
        longest: length of the padded prompts.
        repeats: members a prompt.
        extra: tokens to make room for.
    """

    def __init__(
        self, backbone: Backbone, cache: Any, visible: Tensor | None, longest: int, repeats: int, extra: int
    ) -> None:
        self.backbone, self.cache, self.seen = backbone, cache, longest
        plain = kv.expand(cache, repeats, extra)
        self.mask: Tensor | None = None
        if visible is not None:
            mask = torch.cat([visible, visible.new_ones(len(visible), extra)], 1).repeat_interleave(repeats, 0)
            # A mask in its final form spares the model building one a step; only where one mask serves every layer.
            ready = plain and backbone.takes_position_ids and backbone.config._attn_implementation == "sdpa"
            self.mask = mask[:, None, None, :] if ready else mask.long()

    def step(self, token: Tensor, position: Tensor) -> Tensor:
        self.seen += 1
        visible = None if self.mask is None else self.mask[..., : self.seen]
        inputs = {
            "position_ids": position.unsqueeze(1),
            "attention_mask": visible,
            "past_key_values": self.cache,
            "use_cache": True,
        }
        return self.backbone.forward(token.unsqueeze(1), **inputs).last_hidden_state[:, -1]

    def select(self, rows: Tensor) -> None:
        kv.select(self.cache, rows)
        self.mask = None if self.mask is None else self.mask[rows]


def prefill(
    backbone: Backbone, prompts: Sequence[Sequence[int]], repeats: int, extra: int
) -> tuple[Tensor, Decoder, Tensor]:
    """Forwards each prompt once; tokens that all prompts begin with, such as a system message, are forwarded once for
    all of them where that saves more than a second pass costs.

    Args:
        backbone: the model.
        prompts: token ids of each prompt, `P` of them, none empty.
        repeats: members a prompt.
        extra: tokens to make room for.

    Returns:
        The hidden states of each prompt's last token `[P repeats, H]`, a decoder, and the next position of each member
        `[P repeats]`.
    """
    device, shared = backbone.device, _shared_length(backbone, prompts)
    longest = max(map(len, prompts))
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt[shared:]) for prompt in prompts], device=device)
    cache = kv.prompt_cache(backbone.config)
    if shared:
        beginning = torch.tensor([prompts[0][:shared]], device=device)
        places = torch.arange(shared, device=device).unsqueeze(0)
        backbone.forward(beginning, position_ids=places, past_key_values=cache, use_cache=True)
        cache.batch_repeat_interleave(len(prompts))
    # The padding of a shorter prompt stands between the shared beginning and the rest of it.
    columns = torch.arange(longest - shared, device=device)
    padding = (longest - lengths).unsqueeze(1)
    visible = None
    if bool((padding > 0).any()):
        visible = torch.cat([padding.new_ones(len(prompts), shared).bool(), columns >= padding], 1)
    output = backbone.forward(
        ids,
        position_ids=shared + (columns - padding).clamp_min(0),
        attention_mask=None if visible is None else visible.long(),
        past_key_values=cache,
        use_cache=True,
    )
    hidden = output.last_hidden_state[:, -1].repeat_interleave(repeats, 0)
    decoder = FusedDecoder if FusedDecoder.serves(backbone) else ModelDecoder
    return (
        hidden,
        decoder(backbone, cache, visible, longest, repeats, extra),
        lengths.repeat_interleave(repeats, 0),
    )


def _shared_length(backbone: Backbone, prompts: Sequence[Sequence[int]]) -> int:
    """Counts the tokens that are forwarded once for all prompts; 0 where that saves little, or where the model does not
    go on from the keys of a common beginning as it would by itself.
    """
    rows = list(map(tuple, prompts))
    first, last = min(rows), max(rows)
    limit = min(map(len, prompts)) - 1
    common = next((place for place in range(limit) if first[place] != last[place]), limit)
    saves = common * (len(prompts) - 1) >= _LEAST_SAVED
    return common if saves and can_pack(backbone) else 0
