"""Exact answer: the completion's answer equals the expected text, up to case, spaces and the form of characters."""

from __future__ import annotations

import unicodedata
from numbers import Real
from typing import Any, Literal, final

from groupwise.reward.texts.answer import Answer
from groupwise.reward.texts.extract import Extract
from groupwise.reward.texts.number import plain, whole_number


@final
class ExactAnswer(Answer):
    """`correct` where the extracted answer equals the expected one, `wrong` elsewhere, also where no answer is found.

    The answer column holds a string, a number, or a list of answers of which any will do. A number is compared as one:
    `1,000` is 1000. Full-width characters and typographic minus signs are the same as plain ones.

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
        right = answer is not None and any(self._same(answer, alternative) for alternative in allowed)
        return self.correct if right else self.wrong

    def _same(self, answer: str, expected: Any) -> bool:
        if self._plain(answer) == self._plain(str(expected)):
            return True
        number = whole_number(answer) if isinstance(expected, Real) and not isinstance(expected, bool) else None
        return number is not None and number == whole_number(str(expected))

    def _plain(self, text: str) -> str:
        text = " ".join(plain(unicodedata.normalize("NFC", text)).split())
        return text.casefold() if self.ignore_case else text
