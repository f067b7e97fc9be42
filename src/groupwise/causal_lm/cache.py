"""A key-value cache with room: the prompt's keys and values once for each member of its group, then a slot a step,
written in place.

The growing cache of transformers copies itself at every token; this one is allocated for the whole completion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import DynamicCache, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.cache_utils import DynamicLayer

from groupwise.causal_lm.config import SmallModelConfig
from groupwise.config import ConfigError


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
        return filled(self.keys), filled(self.values)

    def batch_select_indices(self, indices: Tensor) -> None:
        self._key_buffer, self._value_buffer = self._key_buffer[indices], self._value_buffer[indices]
        self._show()


def filled(states: Tensor | None) -> Tensor:
    """Returns a layer's keys or values, which exist from the first forward pass on."""
    assert states is not None, "the cache is used before the prompts were forwarded"
    return states


def with_room(states: Tensor, repeats: int, extra: int) -> Tensor:
    """Copies ``[P, heads, n, dim]`` once for each of `repeats` members and adds `extra` empty slots: ``[P repeats,
    heads, n + extra, dim]``.
    """
    members, heads, length, dim = states.shape
    buffer = states.new_empty(members * repeats, heads, length + extra, dim)
    buffer.view(members, repeats, heads, length + extra, dim)[:, :, :, :length] = states.unsqueeze(1)
    return buffer


def prompt_cache(config: Any) -> DynamicCache:
    """Makes an empty cache for the prompts, with the layer kinds of the model."""
    return DynamicCache(config=config)


def expand(cache: DynamicCache, repeats: int, extra: int) -> bool:
    """Gives every prompt `repeats` members and room for `extra` tokens, in place.

    Returns:
        Whether every layer is full attention, so that a ready-made mask is right for all of them.
    """
    plain = True
    for index, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer:
            cache.layers[index] = RoomyLayer(filled(layer.keys), filled(layer.values), repeats, extra)
        else:
            plain = False
            layer.batch_repeat_interleave(repeats)  # type: ignore[union-attr]
    return plain


def keeps_keys(cache: DynamicCache) -> bool:
    """Tests that every layer of a used cache holds keys and values, and nothing else. A state-space layer holds a
    state, in some models beside keys and values.
    """
    return bool(cache.layers) and all(
        isinstance(layer, DynamicLayer) and layer.keys is not None and not hasattr(layer, "recurrent_states")
        for layer in cache.layers
    )


def full_layers(cache: DynamicCache) -> list[DynamicLayer]:
    """Lists the layers that keep every token: all layers of the cache, or none where one layer keeps fewer."""
    layers = [layer for layer in cache.layers if type(layer) is DynamicLayer]
    return layers if len(layers) == len(cache.layers) else []


def select(cache: DynamicCache, rows: Tensor) -> None:
    """Keeps the members `rows`, in that order."""
    for layer in cache.layers:
        layer.batch_select_indices(rows)  # type: ignore[union-attr]


# A small causal LM with random weights, and a tokenizer of characters and chosen words, so that a default experiment
# trains without a download.
#
# The model is Qwen3-shaped. A folder of type `qwen2` would not do: transformers replaces the tokenizer of such a
# folder by its own class, which drops white space between tokens.

PAD, EOS, UNKNOWN = "<|pad|>", "<|end|>", "<|unknown|>"


def character_tokenizer(
    characters: Iterable[str], words: Iterable[str] = (), special: Iterable[str] = ()
) -> PreTrainedTokenizerFast:
    """Makes a tokenizer whose tokens are single characters and whole words; decoding gives the text back, white space
    included.

    Args:
        characters: the alphabet; white space counts.
        words: texts that are one token each; of two that begin alike the longer is taken. A word is recognised wherever
            its letters stand.
        special: further special tokens (role markers of a chat).

    Returns:
        A fast tokenizer: pad 0, end 1, unknown 2, then special, words, characters in order.

    Raises:
        ConfigError: an entry that is empty, or a character of more than one letter.

    Example:
        >>> tokenizer = character_tokenizer("abc \\n", words=["cab"])
        >>> ids = tokenizer("a cab\\n b")["input_ids"]
        >>> len(ids), tokenizer.decode(ids)
        (6, 'a cab\\n b')
    """
    alphabet, vocabulary = list(dict.fromkeys(characters)), list(dict.fromkeys(words))
    if any(len(character) != 1 for character in alphabet) or "" in vocabulary:
        raise ConfigError("characters must be single letters and words must not be empty; put longer texts into words")
    tokens = list(dict.fromkeys([PAD, EOS, UNKNOWN, *special, *vocabulary, *alphabet]))
    backend = Tokenizer(models.WordLevel({token: index for index, token in enumerate(tokens)}, unk_token=UNKNOWN))
    pieces = [re.escape(word) for word in sorted(vocabulary, key=len, reverse=True)]
    # The class matches a line break too, which a dot does not.
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("|".join([*pieces, r"[\s\S]"])), behavior="isolated")
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        additional_special_tokens=list(special),
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )


def small_model(
    shape: SmallModelConfig, tokenizer: Any, seed: int, dtype: torch.dtype = torch.float32
) -> Qwen3ForCausalLM:
    """Makes a Qwen3-shaped model with random weights, for `tokenizer`; the global generators are left as they were.

    Args:
        tokenizer: gives the vocabulary, end and pad ids.

    Example:
        >>> tokenizer = character_tokenizer("ab")
        >>> small_model(SmallModelConfig(hidden_size=8, num_heads=2), tokenizer, seed=0).config.vocab_size
        5
    """
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_key_value_heads,
        head_dim=shape.head_dim or shape.hidden_size // shape.num_heads,
        max_position_embeddings=shape.max_positions,
        tie_word_embeddings=shape.tied,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype=dtype,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        model = Qwen3ForCausalLM(config)
    return model.to(dtype=dtype)  # type: ignore[call-arg]
