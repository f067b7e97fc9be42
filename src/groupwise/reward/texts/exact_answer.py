"""Exact answer: the completion's answer equals the expected text, up to case and spaces."""

from __future__ import annotations

from typing import Any, Literal, final

from groupwise.reward.texts.answer import Answer
from groupwise.reward.texts.extract import Extract


@final
class ExactAnswer(Answer):
    """`correct` where the extracted answer equals the expected one, `wrong` elsewhere, also where no answer is found.

    The answer column holds a string, a number, or a list of answers of which any will do.

    Example:
        >>> ExactAnswer(extract=Extract(tag="answer"))(
        ...     [""] * 2, ["<answer>A  b</answer>", "a b"], answer=["a B", "a b"]
        ... )
        [1.0, 0.0]
    """

    kind: Literal["exact_answer"] = "exact_answer"
    extract: Extract = Extract()
    """The place of the answer in the completion."""
    ignore_case: bool = True
    """True where capital and small letters count as the same."""

    def judge(self, text: str, expected: Any) -> float:
        """Returns `correct` where the extracted answer is one of the allowed ones.

        Args:
            expected: a string, a number, or a list of answers.
        """
        answer = self.extract(text)
        allowed = expected if isinstance(expected, list | tuple) else [expected]
        return (
            self.correct
            if answer is not None and self._plain(answer) in {self._plain(str(alternative)) for alternative in allowed}
            else self.wrong
        )

    def _plain(self, text: str) -> str:
        text = " ".join(text.split())
        return text.casefold() if self.ignore_case else text
