"""The text of what a policy wrote, as rewards and environments read it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any


def written_texts(tokenizer: Any, rows: Sequence[Sequence[int]], ends: Collection[int]) -> list[str]:
    """Decodes completions. Tokens that end, begin or fill a text go, and so do unknown ones; other special tokens, such
    as `<think>` of some tokenizers, stay as they were written.

    Args:
        rows: token ids of each completion.
        ends: ids that end a completion.

    Example:
        >>> from groupwise.domain.language.tokenizer import build_tokenizer
        >>> words = build_tokenizer("words", ["ball 3"])
        >>> written_texts(words, [[*words.encode("ball 3"), words.eos_token_id]], [])
        ['ball 3']
    """
    control = {tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.unk_token_id, *ends}
    kept = [[token for token in row if token not in control] for row in rows]
    return tokenizer.batch_decode(kept, skip_special_tokens=False)
