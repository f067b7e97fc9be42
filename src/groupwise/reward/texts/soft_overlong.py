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

    The domain counts tokens and gives them as a column, a number or a list of token ids a member; so does it give the
    limit under which the answer was sampled. With `column` null words are counted. A completion cut off at exactly
    `L_max` tokens gets -1.

    Source: DAPO, arXiv 2503.14476, equation 13.

    Example:
        >>> SoftOverlong(max_length=10, cache_length=4)([""] * 4, [""] * 4, num_tokens=[6, 8, 10, 11])
        [0.0, -0.5, -1.0, -1.0]
    """

    kind: Literal["soft_overlong"] = "soft_overlong"
    max_length: Positive | None = None
    """L_max, in tokens; unset is the limit of the run, the column `max_new_tokens`."""
    cache_length: Positive | None = None
    """L_cache: the number of tokens before L_max over which the penalty grows; unset is a fifth of L_max, as 4096 of
    DAPO's 20480.
    """
    column: str | None = "num_tokens"
    """The column with the number of tokens, or the token ids, of each completion; null counts words."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.max_length is not None and (self.cache_length or 0) > self.max_length:
            raise ValueError(
                f"cache_length = {self.cache_length} is longer than max_length = {self.max_length}; write a"
                " cache_length of at most max_length"
            )
        return self

    @property
    def needs(self) -> tuple[str, ...]:
        limit = () if self.max_length is not None else ("max_new_tokens",)
        return limit if self.column is None else (self.column, *limit)

    @property
    def ends(self) -> tuple[float, float]:
        return (-1.0, 0.0)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[Value]:
        counted: Sequence[Any] = (
            [completion_text(completion).split() for completion in completions]
            if self.column is None
            else columns[self.column]
        )
        limits = columns["max_new_tokens"] if self.max_length is None else [self.max_length] * len(counted)
        return [
            None if count is None else self._penalty(len(count) if hasattr(count, "__len__") else int(count), limit)
            for count, limit in zip(counted, limits, strict=True)
        ]

    def _penalty(self, length: int, limit: int) -> float:
        cache = min(self.cache_length or max(1, limit // 5), limit)
        free = limit - cache
        if length <= free:
            return 0.0
        return -1.0 if length > limit else (free - length) / cache
