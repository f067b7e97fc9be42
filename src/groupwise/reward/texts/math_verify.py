"""Mathematical answer: equal as mathematics, by the math-verify library (`1/2`, `0.5` and `\\frac{1}{2}`
are the same).
"""

from __future__ import annotations

import re
from functools import cache
from types import ModuleType
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.config.numbers import Mebibytes
from groupwise.reward.base import MemberLimits, Value
from groupwise.reward.texts.answer import Answer
from groupwise.reward.value_with_event import Noted

# Marks of mathematics such as dollar signs, or prose, which would be read as a product of letters.
_DELIMITER = re.compile(r"\$|\\boxed|\\\(|\\\[|(?<!\\)\b[A-Za-z]{2,}\s+[A-Za-z]{2,}")


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

    The expected answer may stand with or without dollar signs; one that the library cannot read gives a missing reward,
    counted as `gold_unparsable`.

    Example:
        >>> MathVerify()([""] * 2, ["So it is $0.5$.", "It is $x$."], answer=[r"\\frac{1}{2}", "1/2"])
        [1.0, 0.0]
    """

    kind: Literal["math_verify"] = "math_verify"
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
        parse, verify = _library().parse, _library().verify
        # Without dollar signs the library reads only numbers: of "(1, 2)" it would take the 2.
        expected = str(expected)
        bare = _DELIMITER.search(expected) is None
        gold = (bare and parse(f"${expected}$", parsing_timeout=None)) or parse(expected, parsing_timeout=None)
        if not gold:
            return Noted(None, "gold_unparsable", expected)
        return self.correct if verify(gold, parse(text, parsing_timeout=None), timeout_seconds=None) else self.wrong
