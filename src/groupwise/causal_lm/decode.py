"""One decoding step for every member of a batch: the hidden states of the next position from the cache of all positions
before it.

Two ways with one result: through the model itself, for any family, or `groupwise.causal_lm.fused` for the plain rotary
family, whose cost for a small model is not arithmetic but the number of operations a token.
"""

from __future__ import annotations

from typing import Any, Protocol, final

import torch
from torch import Tensor

from groupwise.causal_lm import cache as kv
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.fused import FusedDecoder


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


def prefill(backbone: Backbone, ids: Tensor, lengths: Tensor, repeats: int, extra: int) -> tuple[Tensor, Decoder]:
    """Forwards each prompt once and returns the hidden states of its last token and a decoder, both repeated for each
    member.

    Args:
        backbone: the model.
        ids: ``[P, longest]`` prompts, padded on the left with anything.
        lengths: ``[P]`` their lengths.
        repeats: members a prompt.
        extra: tokens to make room for.
    """
    longest = ids.shape[1]
    columns = torch.arange(longest, device=ids.device)
    padding = (longest - lengths).unsqueeze(1)
    visible = columns >= padding if bool((padding > 0).any()) else None
    cache = kv.prompt_cache(backbone.config)
    mask = None if visible is None else visible.long()
    output = backbone.forward(
        ids, position_ids=(columns - padding).clamp_min(0), attention_mask=mask, past_key_values=cache, use_cache=True
    )
    hidden = output.last_hidden_state[:, -1].repeat_interleave(repeats, 0)
    if FusedDecoder.serves(backbone):
        return hidden, FusedDecoder(backbone, cache, visible, longest, repeats, extra)
    return hidden, ModelDecoder(backbone, cache, visible, longest, repeats, extra)
