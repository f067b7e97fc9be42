"""Features of an answer's text without a vocabulary, so that a new answer has features too."""

from __future__ import annotations

import hashlib
import unicodedata

import numpy as np


def answer_features(text: str, size: int) -> np.ndarray:
    """Computes hashed, signed counts of the text's character n-grams (1 to 3, in lower case, with its ends marked), of
    length 1; fp32 `[size]`.

    Args:
        text: the answer.
        size: number of features.

    Example:
        >>> features = answer_features("yes", 8)
        >>> (
        ...     features.shape,
        ...     bool(abs((features**2).sum() - 1) < 1e-6),
        ...     bool((features == answer_features(" YES ", 8)).all()),
        ... )
        ((8,), True, True)
    """
    marked = f"^{unicodedata.normalize('NFC', text).strip().lower()}$"
    counts = np.zeros(size)
    for length in (1, 2, 3):
        for start in range(len(marked) - length + 1):
            code = int.from_bytes(
                hashlib.blake2b(marked[start : start + length].encode(), digest_size=8).digest(), "big"
            )
            counts[(code >> 1) % size] += 1.0 if code & 1 else -1.0
    norm = np.linalg.norm(counts)
    return (counts / norm if norm > 0 else counts).astype(np.float32)
