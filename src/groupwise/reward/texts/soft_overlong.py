"""Soft overlong punishment: a penalty that grows over the last stretch before the length limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self, final

from pydantic import model_validator

from groupwise.config.numbers import Positive
from groupwise.reward.base import Reward, Value
from groupwise.reward.text import Text, completion_text


@final
class SoftOverlong(Reward):
    """DAPO's length penalty, for a completion of L tokens.

        0                                       L <= L_max - L_cache
        ((L_max - L_cache) - L) / L_cache       L_max - L_cache < L <= L_max
        -1                                      L > L_max

    Tokens are counted by the domain and come as a data column, a number or a list of token ids a member. With `column`
    null words are counted. A completion cut off at exactly `L_max` tokens gets -1.

    Source: DAPO, arXiv 2503.14476, equation 13.

    Example:
        >>> SoftOverlong(max_length=10, cache_length=4)([""] * 4, [""] * 4, num_tokens=[6, 8, 10, 11])
        [0.0, -0.5, -1.0, -1.0]
    """

    kind: Literal["soft_overlong"] = "soft_overlong"
    max_length: Positive = 20480
    """L_max, in tokens."""
    cache_length: Positive = 4096
    """L_cache: over how many tokens before L_max the penalty grows."""
    column: str | None = "num_tokens"
    """The column with the number of tokens, or the token ids, of each completion; null counts words."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.cache_length > self.max_length:
            raise ValueError(
                f"cache_length = {self.cache_length} is longer than max_length = {self.max_length}; write a"
                " cache_length of at most max_length"
            )
        return self

    @property
    def needs(self) -> tuple[str, ...]:
        return () if self.column is None else (self.column,)

    @property
    def ends(self) -> tuple[float, float]:
        return (-1.0, 0.0)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[Value]:
        counted: Sequence[Any] = (
            [completion_text(completion).split() for completion in completions]
            if self.column is None
            else columns[self.column]
        )
        return [
            None if count is None else self._penalty(len(count) if hasattr(count, "__len__") else int(count))
            for count in counted
        ]

    def _penalty(self, length: int) -> float:
        free = self.max_length - self.cache_length
        if length <= free:
            return 0.0
        return -1.0 if length > self.max_length else (free - length) / self.cache_length
