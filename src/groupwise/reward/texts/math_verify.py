"""Mathematical answer: equal as mathematics, by the math-verify library (`1/2`, `0.5` and `\\frac{1}{2}`
are the same).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from types import ModuleType
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.config.errors import Mebibytes
from groupwise.reward.base import MemberLimits, Noted, Value
from groupwise.reward.completions import excerpt
from groupwise.reward.texts.answers import Answer, Extract, last_number, plain, whole_number

# Mathematical marks such as dollar signs, or prose, which would be read as a product of letters.
_DELIMITER = re.compile(r"\$|\\boxed|\\\(|\\\[|(?<!\\)\b[A-Za-z]{2,}\s+[A-Za-z]{2,}")
# Without any of these marks the library reads only numbers, and fewer kinds than this package reads. It also reads per
# cent.
_MARK = re.compile(r"[$\\%]")
_BOX = "\\boxed{"


@cache
def _library() -> ModuleType:
    import math_verify
    from math_verify import grader, parser

    # The library warns that its own time limits are off. Those limits are alarms, which a computation in C does not
    # notice, and the warning writes the whole text to the log.
    grader.TIMEOUT_WARNING_SHOWN = parser.TIMEOUT_WARNING_SHOWN = True
    return math_verify


@final
class MathVerify(Answer):
    """`correct` where the completion's answer equals the expected one as mathematics.

    The library evaluates no text as Python: it reads LaTeX by a grammar of its own, and of plain text what is digits
    and operators. What they come to can still be beyond any computer, so that members are scored one by one in a
    process that is killed when one takes too long or too much memory; that member is wrong, and counted as
    `answer_too_slow` or `answer_too_large`. Called directly, and not by `score` or `Rewards`, it runs here, without
    these limits.

    Of several boxes (`\\boxed{...}`) the last counts. Numbers are read as by `numeric_answer` where nothing marks
    mathematics (`$`, `\\`), and where the library finds none. The expected answer may be written with or without dollar
    signs; one that the library cannot read gives a missing reward, counted as `gold_unparsable`.

    Example:
        >>> MathVerify()([""] * 2, ["So it is $0.5$.", "It is $x$."], answer=[r"\\frac{1}{2}", "1/2"])
        [1.0, 0.0]
    """

    kind: Literal["math_verify"] = "math_verify"
    extract: Extract = Extract()
    """The place of the answer in the completion."""
    isolation: Literal["process"] = "process"
    """The only way: computer algebra can run for ever, and only a process can be killed."""
    seconds_per_answer: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5.0
    """Seconds for one comparison; beyond that the answer counts as wrong."""
    memory_mb: Mebibytes = 1024
    """Mebibytes that one comparison may take."""

    @property
    def reads(self) -> tuple[str, ...]:
        return self.needs

    @property
    def member_limits(self) -> MemberLimits:
        return MemberLimits(self.seconds_per_answer, self.memory_mb, self.wrong)

    def unreadable(self, row: Mapping[str, Any]) -> str | None:
        expected = row.get(self.column)
        # Parsing all rows takes too long. From words without marks the library reads nothing.
        text = "" if expected is None else str(expected).strip()
        if expected is None or (text and (_MARK.search(text) or re.search(r"\d", text) or not _DELIMITER.search(text))):
            return None
        return f"column {self.column!r} holds {excerpt(repr(expected))}, in which there is no mathematics"

    def open(self) -> MathVerify:
        """Returns the function that scores, after loading the library's grammar, so that no member's time is spent on
        loading.
        """
        self.judge("$1$", "$1$")
        return self

    def judge(self, text: str, expected: Any) -> Value:
        """Returns `correct` where the two answers are equal as mathematics.

        Args:
            expected: the expected answer, in LaTeX or plain.
        """
        expected = str(expected)
        gold = _gold(expected)
        if not gold:
            return Noted(None, "gold_unparsable", expected)
        answer = self.extract(text)
        found = [] if answer is None else _answer(plain(answer))
        right = bool(found) and _library().verify(gold, found, timeout_seconds=None)
        return self.correct if right else self.wrong


def _gold(expected: str) -> list[Any]:
    if (number := whole_number(expected)) is not None:
        return _expression(number, rounded=False)
    parse = _library().parse
    # Without dollar signs the library reads only numbers: from "(1, 2)" it would read the 2.
    bare = _DELIMITER.search(expected) is None
    return (bare and parse(f"${expected}$", parsing_timeout=None)) or parse(expected, parsing_timeout=None)


def _answer(text: str) -> list[Any]:
    """Returns the content of the last box of an answer, or the whole answer if it has no box; empty if it holds no
    mathematics.
    """
    boxed, text = _last_box(text)
    number = whole_number(text)
    if number is None and not boxed and _MARK.search(text) is None:
        return _expression(last_number(text))
    if number is None and (found := _library().parse(f"{_BOX}{text}}}" if boxed else text, parsing_timeout=None)):
        return found
    return _expression(last_number(text) if number is None else number)


def _last_box(text: str) -> tuple[bool, str]:
    """Returns whether a text has a box, and the content of the last one, which is empty if the box was cut off."""
    _, box, inside = text.rpartition(_BOX)
    depth = 1
    for place, character in enumerate(inside if box else ""):
        depth += (character == "{") - (character == "}")
        if not depth:
            return True, inside[:place]
    return bool(box), "" if box else text


def _expression(number: Fraction | None, *, rounded: bool = True) -> list[Any]:
    if number is None:
        return []
    # The library compares to six decimals if one side is a decimal number, and exactly if none is.
    exact = _library().parse(rf"$\frac{{{number.numerator}}}{{{number.denominator}}}$", parsing_timeout=None)[0]
    return [exact.evalf() if rounded and number.denominator > 1 else exact]
