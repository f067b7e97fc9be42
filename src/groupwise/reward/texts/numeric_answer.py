"""Numeric answer: the completion's number equals the expected one, exactly or within a tolerance."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.reward.texts.answer import Answer
from groupwise.reward.texts.extract import Extract
from groupwise.reward.texts.number import last_number


@final
class NumericAnswer(Answer):
    """`correct` where the last number of the extracted answer is the expected one: `|x - y| <= max(absolute, relative
    |y|)`.

    The column holds the expected number, or a text whose last number it is.

    Example:
        >>> NumericAnswer()([""] * 3, ["so 1,000", "about 3.14", "no idea"], answer=["1000", 3.14159, 2])
        [1.0, 0.0, 0.0]
        >>> NumericAnswer(absolute_tolerance=0.01)([""], ["about 3.14"], answer=[3.14159])
        [1.0]
    """

    kind: Literal["numeric_answer"] = "numeric_answer"
    extract: Extract = Extract()
    """The place of the answer in the completion."""
    absolute_tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-9
    """Largest allowed distance of the number from the expected one."""
    relative_tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Largest allowed distance as a share of the expected number; the larger of the two tolerances applies."""

    def judge(self, text: str, expected: Any) -> float:
        """Returns `correct` where the last number of the extracted answer is within the tolerance of the expected one.

        Args:
            expected: a number, or a text with one.

        Raises:
            ValueError: there is no number in `expected`.
        """
        target = last_number(str(expected))
        if target is None:
            raise ValueError(
                f'column {self.column!r} holds {expected!r}, in which there is no number; use kind = "exact_answer" for'
                " answers in words"
            )
        answer = self.extract(text)
        number = None if answer is None else last_number(answer)
        margin = max(Fraction(self.absolute_tolerance), Fraction(self.relative_tolerance) * abs(target))
        return self.correct if number is not None and abs(number - target) <= margin else self.wrong
