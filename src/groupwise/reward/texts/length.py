"""Length: near a target number of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, final

from groupwise.config.numbers import Positive
from groupwise.reward.base import Reward
from groupwise.reward.text import Text, completion_text


@final
class Length(Reward):
    """`max(0, 1 - |n - target| / target)` for a completion of n words.

    An empty completion gives 0, as does one of twice the target and more. Words are what spaces separate, so text
    without spaces (Chinese) is one word: count its characters instead.

    Example:
        >>> Length(target=4)([""] * 4, ["one two three four", "one two", "", "a b c d e"])
        [1.0, 0.5, 0.0, 0.75]
    """

    kind: Literal["length"] = "length"
    target: Positive = 50
    unit: Literal["words", "characters"] = "words"
    """The counted unit; characters are counted without spaces."""

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[float]:
        return [self._score(completion_text(completion).split()) for completion in completions]

    def _score(self, words: list[str]) -> float:
        count = len(words) if self.unit == "words" else sum(map(len, words))
        return max(0.0, 1.0 - abs(count - self.target) / self.target)
