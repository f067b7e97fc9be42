"""Repetition: a penalty for saying the same n words again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.config.numbers import Positive
from groupwise.reward.base import Reward
from groupwise.reward.text import Text, completion_text


@final
class Repetition(Reward):
    """`-penalty (1 - u / n)` for n n-grams in the completion, u of them different.

    0 where nothing repeats, or the completion is shorter than one n-gram; towards `-penalty` for endless loops.

    Example:
        >>> Repetition(size=2)([""] * 3, ["a b c", "a b a b a", "a"])
        [0.0, -0.5, 0.0]
    """

    kind: Literal["repetition"] = "repetition"
    size: Positive = 3
    """Units in one n-gram."""
    penalty: Annotated[float, Field(ge=0)] = 1.0
    """The largest penalty, as a positive number."""
    unit: Literal["words", "characters"] = "words"

    @property
    def ends(self) -> tuple[float, float]:
        return (-self.penalty, 0.0)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[float]:
        return [self._score(completion_text(completion)) for completion in completions]

    def _score(self, text: str) -> float:
        units = text.casefold().split()
        if self.unit == "characters":
            units = list("".join(units))
        grams = [tuple(units[start : start + self.size]) for start in range(len(units) - self.size + 1)]
        # Written so that no repetition is 0.0 and not -0.0.
        return self.penalty * (len(set(grams)) / len(grams) - 1.0) if grams else 0.0
