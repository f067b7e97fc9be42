"""A small causal LM with random weights, and a tokenizer of characters and chosen words, so that a default experiment
trains without a download.

The model is Qwen3-shaped. A folder of type `qwen2` would not do: transformers replaces the tokenizer of such a folder
by its own class, which drops white space between tokens.
"""

import re
from collections.abc import Iterable
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from groupwise.causal_lm.config import SmallModelConfig
from groupwise.config import ConfigError

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
