"""Tokens one by one, as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_WORD_START = "\u2581"
"""The sign that SentencePiece writes for the space before a word; decoding a single token drops it."""


def token_texts(tokenizer: Any, rows: Sequence[Sequence[int]]) -> list[list[str]]:
    """Decodes each token by itself; special tokens become their names. A token that is part of a character reads as the
    replacement character.

    Args:
        tokenizer: of a transformers model.
        rows: token ids.

    Returns:
        one text a token.

    Example:
        >>> from groupwise.domain.language.tokenizer import build_tokenizer
        >>> tokenizer = build_tokenizer("words", ["answer 3"])
        >>> token_texts(tokenizer, [[*tokenizer.encode("answer 3"), tokenizer.eos_token_id]])
        [['answer', '3', '<|end|>']]
    """
    token_ids = sorted({token for row in rows for token in row})
    texts = tokenizer.batch_decode([[token] for token in token_ids], clean_up_tokenization_spaces=False)
    starts = [str(raw).startswith(_WORD_START) for raw in tokenizer.convert_ids_to_tokens(token_ids)]
    spaced = [
        " " + text if start and not text.startswith(" ") else text for text, start in zip(texts, starts, strict=True)
    ]
    text_of = dict(zip(token_ids, spaced, strict=True))
    return [[text_of[token] for token in row] for row in rows]
