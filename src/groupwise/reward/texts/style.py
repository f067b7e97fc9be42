"""Format: the completion has the required shape, stated by tags or by a regular expression."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, final

from pydantic import Field, field_validator, model_validator

from groupwise.config.errors import Positive
from groupwise.reward.base import Noted, Reward, Value
from groupwise.reward.completions import Text, completion_text
from groupwise.reward.texts.answers import SlowPattern, check_pattern, matches_whole


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

    _compiles = field_validator("pattern")(check_pattern)

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
                else matches_whole(self.pattern, text)
            )
        except SlowPattern as error:
            return Noted(self.wrong, "pattern_too_slow", str(error))
        return self.correct if right else self.wrong


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
