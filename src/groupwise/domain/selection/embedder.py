"""Texts as vectors whose products are similarities. Imports no torch: an exported selector
embeds too, and runs without it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Literal, Protocol, final

import numpy as np
from pydantic import Field

from groupwise.config import Config
from groupwise.config.numbers import Width


class Embedder(Protocol):
    """Any function from texts to vectors; the embedders of Groupwise are configurations too."""

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds texts as the rows of `[N, D]`."""
        ...


@final
class HashedWords(Config):
    """Bags of words without a vocabulary: signed counts of hashed words (in lower case, without punctuation), of length
    1.

    The cosine of two texts is, up to collisions, the share of words they have in common. It needs no model and no
    download, knows nothing of what words mean, and is the same on every machine.

    Args:
        size: numbers of a vector; collisions become rarer with more.

    Example:
        >>> vectors = HashedWords(size=64)(["refund north", "North, refund!", "login south"])
        >>> (vectors @ vectors.T).round(2).tolist()
        [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]

    A text without words has no direction; it becomes the first unit vector.
    """

    kind: Literal["hashed_words"] = "hashed_words"
    size: Annotated[Width, Field(ge=8)] = 128

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds texts as the rows of an fp32 `[N, size]`."""
        vectors = np.zeros((len(texts), self.size), np.float32)
        for row, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()):
                place, sign = _place(word, self.size)
                vectors[row, place] += sign
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors[length[:, 0] == 0, 0] = 1.0
        return vectors / np.where(length == 0, 1.0, length)


@lru_cache(maxsize=1 << 16)
def _place(word: str, size: int) -> tuple[int, float]:
    code = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
    return (code >> 1) % size, 1.0 if code & 1 else -1.0
