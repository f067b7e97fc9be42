"""Format: the completion has the required shape, stated by tags or by a regular expression."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, Self, final

from pydantic import field_validator, model_validator

from groupwise.reward.base import Reward, Value
from groupwise.reward.text import Text, completion_text
from groupwise.reward.texts.extract import compiled
from groupwise.reward.texts.pattern import SlowPattern, fits
from groupwise.reward.value_with_event import Noted


def follows_tags(text: str, tags: Sequence[str]) -> bool:
    """Returns True where a text consists of these tags in this order, each once, opened and closed, with only spaces
    between and around them.

    Args:
        tags: in the order in which they must come.

    Example:
        >>> follows_tags("<think>2 + 2</think> <answer>4</answer>", ["think", "answer"])
        True
        >>> follows_tags("<answer>4</answer><think>2 + 2</think>", ["think", "answer"])
        False
    """
    marks = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]
    if any(text.count(mark) != 1 for mark in marks):
        return False
    shape = r"\s*".join(f"<{re.escape(tag)}>.*</{re.escape(tag)}>" for tag in tags)
    return re.fullmatch(rf"\s*{shape}\s*", text, re.DOTALL) is not None


@final
class Format(Reward):
    """`correct` where the completion has the shape, `wrong` elsewhere. The shape is either `tags` or `pattern`.

    A completion on which a pattern of nested repetitions takes more than five seconds is wrong, and counted as
    `pattern_too_slow`.

    Example:
        >>> Format()([""] * 2, ["<think>a</think><answer>b</answer>", "b"])
        [1.0, 0.0]
        >>> Format(tags=None, pattern=r"\\d+")([""] * 2, ["42", "42!"])
        [1.0, 0.0]
        >>> Format(prefilled="<think>")([""], ["a</think><answer>b</answer>"])
        [1.0]
    """

    kind: Literal["format"] = "format"
    tags: tuple[str, ...] | None = None
    """Tags that must follow each other, each once; `think`, `answer` where neither tags nor pattern are given."""
    pattern: str | None = None
    """A regular expression the whole completion must match; `.` matches line breaks."""
    prefilled: str = ""
    """Text that the prompt already wrote at the start of the answer; it is put before the completion."""
    correct: float = 1.0
    wrong: float = 0.0

    _compiles = field_validator("pattern")(compiled)

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        if self.tags is not None and self.pattern is not None:
            raise ValueError("tags and pattern are two ways to state one shape; keep one of them")
        if self.tags is not None and (not self.tags or len(set(self.tags)) != len(self.tags)):
            raise ValueError(
                f'tags must be different names, at least one, got {list(self.tags)}; write tags = ["think", "answer"]'
            )
        return self

    @property
    def ends(self) -> tuple[float, float]:
        return (min(self.wrong, self.correct), max(self.wrong, self.correct))

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[Value]:
        return [self._score(self.prefilled + completion_text(completion)) for completion in completions]

    def _score(self, text: str) -> Value:
        try:
            right = (
                follows_tags(text, self.tags or ("think", "answer"))
                if self.pattern is None
                else fits(self.pattern, text)
            )
        except SlowPattern as error:
            return Noted(self.wrong, "pattern_too_slow", str(error))
        return self.correct if right else self.wrong
