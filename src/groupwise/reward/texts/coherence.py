"""Coherence: connectives that hold an argument together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.reward.base import Reward
from groupwise.reward.text import Text, completion_text


@final
class Coherence(Reward):
    """`min(maximum, each n)` for n different connectives in the completion; how often one occurs does not matter.

    Easily hacked (a model that writes the connectives and nothing else earns it): for demonstrations, and beside a
    reward that judges content.

    Example:
        >>> Coherence()([""] * 3, ["因为下雨，所以带伞", "因为因为", ""])
        [0.4, 0.2, 0.0]
    """

    kind: Literal["coherence"] = "coherence"
    connectives: Annotated[tuple[str, ...], Field(min_length=1)] = ("因为", "所以", "然而", "但是")
    """Words looked for, as written; by default because, therefore, however, but."""
    each: float = 0.2
    maximum: float = 1.0

    @property
    def ends(self) -> tuple[float, float]:
        return (0.0, self.maximum)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[float]:
        return [self._score(completion_text(completion)) for completion in completions]

    def _score(self, text: str) -> float:
        return min(self.maximum, self.each * sum(connective in text for connective in self.connectives))
