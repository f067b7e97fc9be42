"""What the doctor wants to know of a completion beside its reward: whether another member is the same, and how much of
it repeats itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from groupwise.reward.text import completion_text


@final
@dataclass(frozen=True)
class Content:
    """A completion in short.

    Args:
        digest: equal for equal completions.
        repetition: share of its phrases of three words that stand in it before; `None` where it has fewer than two
            such phrases, and of images.
    """

    digest: int
    repetition: float | None = None

    @staticmethod
    def of(completion: Any) -> Content:
        """Reads a text, a list of messages, or an image (a tensor or array of bytes).

        Example:
            >>> Content.of("a b c a b c a b c").repetition, Content.of("a b c").repetition
            (0.5714285714285714, None)
            >>> Content.of("yes").digest == Content.of("yes").digest != Content.of("no").digest
            True
        """
        if isinstance(completion, str | list):
            text = completion if isinstance(completion, str) else completion_text(completion)
            return Content(_digest(text.encode(errors="replace")), repetition(text.split()))
        array = completion.numpy() if hasattr(completion, "numpy") else completion
        return Content(_digest(array.tobytes()))


def repetition(words: Sequence[str]) -> float | None:
    """Returns the share of phrases of three words that stand in the text before; `None` of fewer than two phrases.

    Args:
        words: of a text.
    """
    num_phrases = len(words) - 2
    return 1 - len(set(zip(words, words[1:], words[2:], strict=False))) / num_phrases if num_phrases > 1 else None


def _digest(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")
