"""The place of the answer in a completion: the whole text, a tag, the text after a marker, or a regular expression."""

from __future__ import annotations

import collections
import re
from typing import Self, final

from pydantic import field_validator, model_validator

from groupwise.config import Config
from groupwise.reward.texts import pattern as patterns

_THOUGHTS = ("think", "thinking", "thought", "reasoning")
_MARK_OF_THOUGHT = re.compile(rf"<(/?)(?:{'|'.join(_THOUGHTS)})>", re.IGNORECASE)


def after_thought(text: str) -> str | None:
    """Returns what follows the last closed thought; None where a thought was cut off.

    Example:
        >>> after_thought("<think>3?</think>4"), after_thought("3?</think>4"), after_thought("<think>is it 42")
        ('4', '4', None)
    """
    last = collections.deque(_MARK_OF_THOUGHT.finditer(text), maxlen=1)
    if not last:
        return text
    return text[last[0].end() :] if last[0][1] else None


def compiled(pattern: str | None) -> str | None:
    """Returns the pattern itself; refuses a text that is no regular expression.

    Args:
        pattern: a regular expression, or nothing.

    Raises:
        ValueError: it does not compile.

    Example:
        >>> compiled("a+")
        'a+'
    """
    if pattern is not None:
        patterns.compiled(pattern)
    return pattern


@final
class Extract(Config):
    """Takes the answer out of a completion; the last place that fits counts, since a model may correct itself.

    With nothing set the whole completion is the answer. At most one of the three may be set. Nothing found gives None.
    A thought (`<think>...</think>`) holds no answer, and one that was cut off has none behind it. Only a `tag` that
    names the thought, or a `pattern`, which searches all of the text, reads inside.

    Example:
        >>> Extract(tag="answer")("<answer>3</answer> no, <answer> 4 </answer>")
        '4'
        >>> Extract(after="####")("2 + 2 = 4\\n#### 4")
        '4'
        >>> Extract(pattern=r"x = (\\S+)")("so x = 4")
        '4'
        >>> Extract(tag="answer")("4") is None
        True
    """

    tag: str | None = None
    """Name of an XML-like tag: `answer` reads `<answer>...</answer>`."""
    after: str | None = None
    """A marker; the rest of its line is the answer."""
    pattern: str | None = None
    """A regular expression; its first group, or the whole match where it has none. A search of more than five seconds
    finds nothing.
    """

    _compiles = field_validator("pattern")(compiled)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [name for name in ("tag", "after", "pattern") if getattr(self, name) is not None]
        if len(ways) > 1:
            raise ValueError(f"{' and '.join(ways)} are different ways to find an answer; keep one of them")
        return self

    def __call__(self, text: str) -> str | None:
        if self.pattern is not None:
            return self._searched(text)
        if self.tag not in _THOUGHTS:
            answered = after_thought(text)
            if answered is None:
                return None
            text = answered
        if self.tag is not None:
            # Between two opening tags there is at most one answer.
            sections = (part.partition(f"</{self.tag}>") for part in reversed(text.split(f"<{self.tag}>")[1:]))
            return next((answer.strip() for answer, closing, _ in sections if closing), None)
        if self.after is not None:
            _, marker, remainder = text.rpartition(self.after)
            return (remainder.strip().splitlines() or [""])[0].strip() if marker else None
        return text.strip()

    def _searched(self, text: str) -> str | None:
        assert self.pattern is not None
        try:
            match = patterns.last(self.pattern, text)
        except patterns.SlowPattern:
            return None
        return None if match is None else ((match[1] or "") if match.re.groups else match[0]).strip()
