"""Features of an answer's text, without a vocabulary: an answer never seen before has some too."""

from __future__ import annotations

import hashlib

import numpy as np


def answer_features(text: str, size: int) -> np.ndarray:
    """Hashed, signed counts of the text's character n-grams (1 to 3, in lower case, with its ends marked), of length 1;
    fp32 `[size]`.

    Args:
        text: the answer.
        size: how many features.

    Example:
        >>> features = answer_features("yes", 8)
        >>> (
        ...     features.shape,
        ...     bool(abs((features**2).sum() - 1) < 1e-6),
        ...     bool((features == answer_features(" YES ", 8)).all()),
        ... )
        ((8,), True, True)
    """
    marked = f"^{text.strip().lower()}$"
    found = np.zeros(size)
    for length in (1, 2, 3):
        for start in range(len(marked) - length + 1):
            code = int.from_bytes(
                hashlib.blake2b(marked[start : start + length].encode(), digest_size=8).digest(), "big"
            )
            found[(code >> 1) % size] += 1.0 if code & 1 else -1.0
    norm = np.linalg.norm(found)
    return (found / norm if norm > 0 else found).astype(np.float32)
