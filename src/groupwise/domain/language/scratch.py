"""A small Qwen3-shaped model with fresh weights, and a tokenizer made from the texts it will read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from groupwise.domain.language.model import Scratch

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"

# Tags whole, words and punctuation with the space before them, single digits, and what is left: together they are the text again.
_PIECES = r" ?</?\w+>| ?[^\W\d_]+| ?\d| ?[^\w\s]|\s|_"


def build_tokenizer(kind: str, texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer that knows what is in the texts, and nothing else.

    Args:
        kind: `words`, `pieces` or `characters`.
        texts: everything it must be able to read and write; the order does not matter.

    Example:
        >>> words = build_tokenizer("words", ["ball 3 ?", "answer 3"])
        >>> words.decode(words.encode("ball 3 ?") + [words.eos_token_id], skip_special_tokens=True)
        'ball 3 ?'
        >>> pieces = build_tokenizer("pieces", ["<think>so, 12.</think>"])
        >>> pieces.decode(pieces.encode("<think>so, 12.</think>"))
        '<think>so, 12.</think>'
    """
    split, decoder = {
        "words": (pre_tokenizers.WhitespaceSplit(), None),
        "pieces": (pre_tokenizers.Split(Regex(_PIECES), "isolated"), decoders.Fuse()),
        "characters": (pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), decoders.Fuse()),
    }[kind]
    found: set[str] = set()
    for text in texts:
        found.update(piece for piece, _ in split.pre_tokenize_str(text))
    vocabulary = {token: number for number, token in enumerate([PAD, EOS, UNKNOWN, *sorted(found - {PAD, EOS, UNKNOWN})])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = split  # type: ignore[assignment]
    if decoder is not None:
        tokenizer.decoder = decoder  # type: ignore[assignment]
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, unk_token=UNKNOWN, clean_up_tokenization_spaces=False)


def build_model(config: Scratch, tokenizer: Any, seed: int) -> nn.Module:
    """Qwen3 of the given size with tied embeddings; the weights are a function of the seed, and no global generator moves."""
    shape = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=config.hidden_size // config.num_heads,
        max_position_embeddings=config.max_length,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        model = Qwen3ForCausalLM(shape)
    return model.to(getattr(torch, config.dtype))
