"""Exact answer: the text that was asked for, up to case and spaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, final

from groupwise.reward.base import Reward
from groupwise.reward.extract import Extract
from groupwise.reward.text import Text, completion_text


@final
class ExactAnswer(Reward):
    """`correct` where the extracted answer equals the expected one, `wrong` elsewhere, also where no answer is found.

    The answer column holds a string, a number, or a list of answers of which any will do.

    Example:
        >>> ExactAnswer(extract=Extract(tag="answer"))([""] * 2, ["<answer>A  b</answer>", "a b"], answer=["a B", "a b"])
        [1.0, 0.0]
    """

    kind: Literal["exact_answer"] = "exact_answer"
    column: str = "answer"
    """The data column with the expected answer."""
    extract: Extract = Extract()
    """Where the answer stands in the completion."""
    ignore_case: bool = True
    correct: float = 1.0
    wrong: float = 0.0

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.column,)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[float]:
        return [self._score(completion_text(completion), wanted) for completion, wanted in zip(completions, columns[self.column], strict=True)]

    def _score(self, text: str, wanted: Any) -> float:
        found = self.extract(text)
        allowed = wanted if isinstance(wanted, list | tuple) else [wanted]
        return self.correct if found is not None and self._plain(found) in {self._plain(str(each)) for each in allowed} else self.wrong

    def _plain(self, text: str) -> str:
        text = " ".join(text.split())
        return text.casefold() if self.ignore_case else text
