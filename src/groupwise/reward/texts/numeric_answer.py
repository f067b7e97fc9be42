"""Numeric answer: the completion's number equals the expected one, exactly or within a tolerance."""

from __future__ import annotations

import collections
import re
from fractions import Fraction
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.reward.texts.answer import Answer
from groupwise.reward.texts.extract import Extract

# A sign counts only where no operand stands before it: the last number of "5-3" is 3.
_NUMBER = re.compile(
    r"(?<![\w.)])[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+|/\d+)?|(?<![\w.)])[-+]?\.\d+"
)


def last_number(text: str) -> Fraction | None:
    """Reads the last number in a text, exactly. Thousands separators and simple fractions are read; a division by zero
    is no number.

    Example:
        >>> last_number("It costs $1,250.50."), last_number("3/4"), last_number("5-3"), last_number("none")
        (Fraction(2501, 2), Fraction(3, 4), Fraction(3, 1), None)
    """
    # The deque stores one match at a time, because a long text has millions.
    last = collections.deque(_NUMBER.finditer(text), maxlen=1)
    if not last:
        return None
    digits = last[0][0].replace(",", "")
    # An exponent of thousands would build a number of thousands of digits for one malicious token.
    _, _, exponent = digits.lower().partition("e")
    if len(digits) > 400 or (exponent and abs(int(exponent)) > 400):
        return None
    try:
        return Fraction(digits)
    except (ValueError, ZeroDivisionError):
        return None


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
