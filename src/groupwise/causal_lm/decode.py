"""One decoding step for every member of a batch: the hidden states of the next position from the cache of all positions
before it; then the draw of a token, and whether it may end a turn.

Two ways of a step with one result: through the model itself, for any family (`ModelDecoder`), or written out for the
plain rotary family (`FusedDecoder`), whose cost for a small model is not arithmetic but the number of operations.
Both keep keys and values with room for the whole completion, written in place, where the growing cache of transformers
copies itself at every token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.scoring import can_pack
from groupwise.config import ConfigError

_LEAST_SAVED = 256
"""The least number of prompt tokens that a common beginning must save. A second pass costs a small model as much as
many tokens.
"""


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
        layers: list[Any] = cache.layers
        kinds = list(map(type, layers))
        plain = all(kind is DynamicLayer for kind in kinds)
        for index, (kind, layer) in enumerate(zip(kinds, layers, strict=True)):
            if kind is DynamicLayer:
                layers[index] = RoomyLayer(layer.keys, layer.values, repeats, extra)
            else:
                layer.batch_repeat_interleave(repeats)
        self.mask: Tensor | None = None
        if visible is not None:
            mask = torch.cat([visible, visible.new_ones(len(visible), extra)], 1).repeat_interleave(repeats, 0)
            # A mask in its final form saves the model from building one at every step. This works only where one mask
            # serves every layer.
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
        for layer in self.cache.layers:
            layer.batch_select_indices(rows)
        self.mask = None if self.mask is None else self.mask[rows]


class RoomyLayer(DynamicLayer):
    """One layer's keys and values in buffers ``[B, heads, capacity, dim]`` of which the first `length` slots are
    filled.
    """

    def __init__(self, keys: Tensor, values: Tensor, repeats: int, extra: int) -> None:
        super().__init__()
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self.length = keys.shape[-2]
        self._key_buffer, self._value_buffer = with_room(keys, repeats, extra), with_room(values, repeats, extra)
        self._show()

    def _show(self) -> None:
        self.keys, self.values = self._key_buffer[:, :, : self.length], self._value_buffer[:, :, : self.length]

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        stop = self.length + key_states.shape[-2]
        self._key_buffer[:, :, self.length : stop] = key_states
        self._value_buffer[:, :, self.length : stop] = value_states
        self.length = stop
        self._show()
        return self._key_buffer[:, :, :stop], self._value_buffer[:, :, :stop]

    def batch_select_indices(self, indices: Tensor) -> None:
        self._key_buffer, self._value_buffer = self._key_buffer[indices], self._value_buffer[indices]
        self._show()


def with_room(states: Tensor, repeats: int, extra: int) -> Tensor:
    """Copies ``[P, heads, n, dim]`` once for each of `repeats` members and adds `extra` empty slots: ``[P repeats,
    heads, n + extra, dim]``.
    """
    members, heads, length, dim = states.shape
    buffer = states.new_empty(members * repeats, heads, length + extra, dim)
    buffer.view(members, repeats, heads, length + extra, dim)[:, :, :, :length] = states.unsqueeze(1)
    return buffer


# The weights of the products are copied side by side for sampling. Above this number the copy costs more than it saves.
_MOST_PARAMETERS = 100_000_000


@final
class FusedDecoder:
    """The decode step of the plain rotary family (Llama, Qwen2, Qwen3) in a third of the operations; equal to the
    model's own to fp32 rounding. Arguments: see `ModelDecoder`; weights are read when it is made.

    For a small model a token costs operations, not arithmetic. Here query, key and value are one product, so are gate
    and up; the residual is added inside the product that feeds it; one query attends by two batched products over a
    cache that is already in their layout.

        x += W_o softmax(rot(q) rot(K)^T / sqrt(d)) V,   x += W_d (silu(W_g n(x)) * W_u n(x)),   n = RMS norm
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
        for layer in cache.layers:
            pair = [with_room(states, repeats, extra) for states in (layer.keys, layer.values)]
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

    def step(self, token: Tensor, position: Tensor) -> Tensor:
        x = functional.embedding(token, self.embedding)
        # Without padding all members are at the same position.
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
    cache = DynamicCache(config=backbone.config)
    if shared:
        beginning = torch.tensor([prompts[0][:shared]], device=device)
        places = torch.arange(shared, device=device).unsqueeze(0)
        backbone.forward(beginning, position_ids=places, past_key_values=cache, use_cache=True)
        cache.batch_repeat_interleave(len(prompts))
    # The padding of a shorter prompt is between the shared beginning and the rest of it.
    columns = torch.arange(longest - shared, device=device)
    padding = (longest - lengths).unsqueeze(1)
    visible = None
    if min(map(len, prompts)) < longest:
        visible = torch.cat([padding.new_ones(len(prompts), shared).bool(), columns >= padding], 1)
    output = backbone.forward(
        ids,
        position_ids=shared + (columns - padding).clamp_min(0),
        attention_mask=None if visible is None else visible.long(),
        past_key_values=cache,
        use_cache=True,
    )
    hidden = output.last_hidden_state[:, -1].repeat_interleave(repeats, 0)
    is_small = sum(parameter.numel() for parameter in backbone.body.parameters()) <= _MOST_PARAMETERS
    decoder = FusedDecoder if is_small and backbone.plain_rotary else ModelDecoder
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


# Draws of one token a member, by one uniform number a token: a member's tokens depend on its own seed and nothing
# else.
#
# The uniform of decision t of a member with seed s is a counter-based hash of (s, t) (splitmix64), so no generator is
# kept, and neighbours, order and batch size cannot reach it. The token is the first whose cumulative probability, in
# the order of token ids, exceeds the uniform.


class DistributionError(RuntimeError):
    """The model gave no distribution to draw from: its numbers are NaN or infinite.

    Args:
        num_broken, num_members: how many, and of how many.
        place: the place of the first one: its prompt in the batch, and its number in the group, from 0.
        token: of its completion, from 0.
    """

    def __init__(self, num_broken: int, num_members: int, place: tuple[int, int], token: int) -> None:
        prompt, member = place
        super().__init__(
            f"the model's distribution over tokens is not finite for {num_broken} of {num_members} members (first:"
            f" prompt {prompt} of the batch, member {member}, token {token}, all counted from 0): a weight is NaN or"
            " infinite, or a number overflows on the way. After some training, go on from an earlier checkpoint with a"
            " lower optimiser.learning_rate, or with train.max_grad_norm = 1.0; with bfloat16 or float16 weights,"
            " write dtype = float32; before any training, the model folder is damaged"
        )


def check_finite(log_prob: Tensor, members: Sequence[int], group_size: int) -> None:
    """Refuses log-probs that are not finite, naming the first such member.

    Args:
        log_prob: ``[B, T]`` nats.
        members: the number of each row's member in the batch, prompt by prompt.
        group_size: members a prompt.

    Raises:
        DistributionError: there is one.
    """
    broken = ~log_prob.isfinite()
    rows = broken.any(1).nonzero().squeeze(1).tolist()
    if rows:
        first_row = min(rows, key=lambda row: members[row])
        raise DistributionError(
            len(rows), len(log_prob), divmod(members[first_row], group_size), int(broken[first_row].int().argmax())
        )


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniforms(seeds: Sequence[int], num: int) -> Tensor:
    """Computes ``[B, num]`` fp64 uniforms strictly between 0 and 1; row b is a function of ``seeds[b]``.

    Args:
        seeds: one integer a member; taken modulo 2^64.
        num: how many each.

    Example:
        >>> bool((uniforms([3, 5], 4)[1] == uniforms([5], 9)[0, :4]).all())
        True

    Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014 (splitmix64).
    """
    start = _mix(np.array([int(seed) % 2**64 for seed in seeds], dtype=np.uint64).reshape(-1, 1) + _GOLDEN)
    steps = np.arange(1, num + 1, dtype=np.uint64) * _GOLDEN
    # 48 bits and a half: the number is strictly inside (0, 1) in fp64, even after it is multiplied by a total mass that
    # is one ulp from 1.
    return torch.from_numpy(((_mix(start + steps) >> np.uint64(16)).astype(np.float64) + 0.5) * 2.0**-48)


def truncation_mask(log_prob: Tensor, top_k: int, top_p: float) -> Tensor | None:
    """Marks the tokens that top-k, then top-p on the rest of top-k, leave: ``[B, V]`` bool; ``None`` when all are left.

    Args:
        log_prob: ``[B, V]`` log-probs, nats.
        top_k: number of most likely tokens, 0 for all.
        top_p: mass of the smallest set of most likely tokens, 1 for all.

    Example:
        >>> truncation_mask(torch.tensor([[0.5, 0.3, 0.2]]).log(), 0, 0.7).tolist()
        [[True, True, False]]

    The most likely token is always kept.
    """
    vocabulary = log_prob.shape[1]
    if (top_k == 0 or top_k >= vocabulary) and top_p >= 1:
        return None
    width = min(top_k, vocabulary) if top_k else vocabulary
    values, order = torch.topk(log_prob, width, dim=1)
    keep = torch.ones_like(values, dtype=torch.bool)
    if top_p < 1:
        p = torch.softmax(values.double(), dim=1)
        keep = p.cumsum(1) - p < top_p
    return torch.zeros_like(log_prob, dtype=torch.bool).scatter_(1, order, keep)


def draw(probability: Tensor, uniform: Tensor) -> Tensor:
    """Draws token ids ``[B]``: the first index whose cumulative mass exceeds ``uniform`` of the total.

    Args:
        probability: ``[B, V]`` non-negative masses, not all zero; they need not sum to 1.
        uniform: ``[B]`` in (0, 1).

    Example:
        >>> draw(torch.tensor([[0.25, 0.0, 0.75]]), torch.tensor([0.25])).item()
        2

    A token of mass 0 is never drawn. Masses that are NaN give some token, so that no index is out of range; who keeps
    its log-prob sees it.
    """
    # In fp32 a running sum over 150,000 tokens would have an error larger than the probability of the rarest tokens.
    cumulative = probability.cumsum(1, dtype=torch.float64)
    threshold = cumulative[:, -1:] * uniform.unsqueeze(1)
    return torch.searchsorted(cumulative, threshold, right=True).squeeze(1).clamp_max_(probability.shape[1] - 1)


@final
class Stops:
    """Finds cheaply which tokens may end a turn, and decides exactly whether one does.

    Decoding every member at every token would cost more than a small model. A stop text can only be completed by a
    token that contains its last character, so a table over the vocabulary names the tokens after which it is worth
    decoding the tail.

    Args:
        eos: ids that end a turn by themselves.
        texts: stop texts; they need a tokenizer.
        tokenizer: a tokenizer of transformers.
        vocabulary: number of logits.
        device: where `may_end` is looked up.

    Attributes:
        may_end: `[vocabulary]` bool, true at the tokens after which `ends` must be called.

    Example:
        >>> from groupwise.causal_lm.small import character_tokenizer
        >>> tokenizer = character_tokenizer("abc")  # pad 0, end 1, unknown 2, a 3, b 4, c 5
        >>> stops = Stops([1], ["ab"], tokenizer, vocabulary=6, device=torch.device("cpu"))
        >>> stops.may_end[[3, 4, 1]].tolist()
        [False, True, True]
        >>> stops.ends([5, 3, 4]), stops.ends([5, 4]), stops.ends([5, 1])
        (True, False, True)
    """

    def __init__(
        self, eos: Iterable[int], texts: Sequence[str], tokenizer: Any, vocabulary: int, device: torch.device
    ) -> None:
        self.eos = frozenset(eos)
        self.texts = tuple(texts)
        self.tokenizer = tokenizer
        if self.texts and tokenizer is None:
            raise ConfigError(
                f"stop = {list(self.texts)} needs a tokenizer to decode with; pass one, or write stop = []"
            )
        # A character takes at most four byte tokens. A few more tokens come before them, because decoders treat the
        # first token of a text differently.
        self.tail = 4 * max((len(text) for text in self.texts), default=0) + 4
        table = torch.zeros(vocabulary, dtype=torch.bool)
        if self.texts:
            completes = torch.tensor(_may_complete(self.tokenizer, self.texts), dtype=torch.bool)
            table[: len(self.tokenizer)] = completes[:vocabulary]
        table[[token for token in self.eos if token < vocabulary]] = True
        self.may_end = table.to(device)

    def ends(self, turn: Sequence[int]) -> bool:
        """Tests that the turn whose tokens are `turn` ends with its last token."""
        if turn[-1] in self.eos:
            return True
        if not self.texts:
            return False
        # Only the last token's text is new: a stop text before it would have ended the turn already.
        tail = _decode(self.tokenizer, turn[-self.tail :])
        return any(text in tail for text in self.texts)


def _decode(tokenizer: Any, tokens: Sequence[int]) -> str:
    return tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def _may_complete(tokenizer: Any, texts: Sequence[str]) -> list[bool]:
    last_characters = {text[-1] for text in texts}
    num = len(tokenizer)
    if any(character.isspace() for character in last_characters):
        # Decoders drop or merge white space at the edges, so a token decoded alone does not show it.
        return [True] * num
    token_texts = tokenizer.batch_decode(
        [[token] for token in range(num)], skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    # A token that decodes to the replacement character is part of a character; it may complete any.
    return [any(character in text for character in last_characters) or "\ufffd" in text for text in token_texts]
