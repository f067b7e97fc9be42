"""Numeric answer: the completion's number equals the expected one, exactly or within a tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.reward.base import Value
from groupwise.reward.text import excerpt
from groupwise.reward.texts.answer import Answer
from groupwise.reward.texts.extract import Extract
from groupwise.reward.texts.number import last_number
from groupwise.reward.value_with_event import Noted


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

    def unreadable(self, row: Mapping[str, Any]) -> str | None:
        expected = row.get(self.column)
        if expected is None or last_number(str(expected)) is not None:
            return None
        return (
            f"column {self.column!r} holds {excerpt(repr(expected))}, in which there is no number; use kind ="
            ' "exact_answer" for answers in words'
        )

    def judge(self, text: str, expected: Any) -> Value:
        """Returns `correct` where the last number of the extracted answer is within the tolerance of the expected one.

        Args:
            expected: a number, or a text with one. A text without one gives no reward (`gold_unparsable`).
        """
        target = last_number(str(expected))
        if target is None:
            return Noted(None, "gold_unparsable", self.unreadable({self.column: expected}) or "")
        answer = self.extract(text)
        number = None if answer is None else last_number(answer)
        margin = max(Fraction(self.absolute_tolerance), Fraction(self.relative_tolerance) * abs(target))
        return self.correct if number is not None and abs(number - target) <= margin else self.wrong
