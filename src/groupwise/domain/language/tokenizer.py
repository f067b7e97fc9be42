"""A tokenizer made from the texts that a model with fresh weights will read and write."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from groupwise.causal_lm.scratch import EOS, PAD, UNKNOWN

# The pattern takes whole tags, words and punctuation with the space before them, single digits, and any other
# character, so that the pieces join to the text.
_PIECES = r" ?</?\w+>| ?[^\W\d_]+| ?\d| ?[^\w\s]|\s|_"


def build_tokenizer(kind: str, texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Builds a tokenizer whose vocabulary is what the texts contain, and nothing else.

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
    if kind == "words":
        # The same few words stand in thousands of texts.
        texts = {words for text in texts for words in text.split(" ")}
    pieces: set[str] = set()
    for text in texts:
        pieces.update(piece for piece, _ in split.pre_tokenize_str(text))
    vocabulary = {
        token: number for number, token in enumerate([PAD, EOS, UNKNOWN, *sorted(pieces - {PAD, EOS, UNKNOWN})])
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = split  # type: ignore[assignment]
    if decoder is not None:
        tokenizer.decoder = decoder  # type: ignore[assignment]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, unk_token=UNKNOWN, clean_up_tokenization_spaces=False
    )
