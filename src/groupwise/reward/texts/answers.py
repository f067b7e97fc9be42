"""The common part of rewards that compare with an expected answer: its column, and the values of right and wrong
answers.
"""

import collections
import re
import unicodedata
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from numbers import Real
from typing import Annotated, Any, Literal, Self, final

from pydantic import Field, field_validator, model_validator

from groupwise.config import Config
from groupwise.reward.base import Noted, Reward, Value
from groupwise.reward.completions import Text, completion_text, excerpt


class Answer(Reward):
    """`judge(text, expected)` for every member; missing where None is expected. Subclasses add a `kind`, `judge`."""

    column: str = "answer"
    """The data column with the expected answer."""
    correct: float = 1.0
    """Reward of a right answer."""
    wrong: float = 0.0
    """Reward of every completion without a right answer."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The column with the expected answer."""
        return (self.column,)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[Value]:
        return [
            None if expected is None else self.judge(completion_text(completion), expected)
            for completion, expected in zip(completions, columns[self.column], strict=True)
        ]

    @abstractmethod
    def judge(self, text: str, expected: Any) -> Value:
        """Computes the reward of one completion.

        Args:
            expected: the expected answer, as it is in the column.
        """


# The reader of numbers that all rewards share: digits of any script, with signs, currencies, thousands separators,
# powers and fractions, as people write them.

_MAX_DIGITS = 400
_SPACE = "[ \u2009]"
_SUPERSCRIPTS = "⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
_RAISED = str.maketrans(_SUPERSCRIPTS, "+-0123456789")
_PLAIN: dict[int, str | None] = {
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},  # full-width forms
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212\ufe63"), "-"),
    **dict.fromkeys(map(ord, "\u2044\u2215"), "/"),
    **dict.fromkeys([0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F], "\u2009"),
    **dict.fromkeys([*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x206A), 0xFEFF], None),
    **dict(zip(map(ord, "\u3000\uffe5\uffe1\u066b\u066c"), " ¥£.,", strict=True)),
    **{
        code: "\u2009" + unicodedata.normalize("NFKC", chr(code)).replace("\u2044", "/")
        for code in (*range(0xBC, 0xBF), *range(0x2150, 0x215F), 0x2189)
    },
}
# In these scripts a digit directly after a letter belongs to a name, as in H2O. Others write no space before a number.
_LETTER = "A-Za-zª-ɏͰ-ϿḀ-ỿ"
# A sign belongs to a number only if no operand precedes it: the last number of "5-3" is 3.
_OPERAND = rf"{_LETTER}\d.)\]}}%"
_SIGN_APART = re.compile(
    rf"(?i)(?:\A|(?<=[=≈:(\[{{>])|(?<=[=≈:(\[{{>]{_SPACE}))[-—]{_SPACE}?(?=[\d.$€£¥\\])"
    rf"|(?<![\d)}}\]]{_SPACE})\b(?:minus|negative){_SPACE}+(?=[\d.$€£¥])|(?<!\d)(?:负|負|マイナス)(?=\d)"
)
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_POWER = rf"(?:\s?\^\s?(?:{_BRACES}|[-+]?\d+|\S)|[{_SUPERSCRIPTS}]+)"
_SEPARATOR = r"(?:,|\{,\}|\\[,:; ]|[ \u2009'’_])"
_CURRENCY = (
    r"(?:[A-Z]{0,3}\\?[$€£¥¢฿\u20a0-\u20cf]|Rs\.?|AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|IDR|ILS|INR|JPY|KRW|MXN|MYR"
    r"|NOK|NZD|PHP|PLN|RMB|RUB|SEK|SGD|THB|TRY|TWD|UAH|USD|VND|ZAR)"
)
# There are three ways to write a decimal number: 1.234,56 with its separators exchanged; 1,234.56 or 1234.56; and .56.
_DECIMAL = (
    r"(?:\d{1,3}(?:\.\d{3})+,\d\d?(?![\d,])"
    rf"|(?:\d{{1,3}}(?P<separator>{_SEPARATOR})\d{{3}}(?:(?P=separator)\d{{3}})*(?!\d)|\d+)(?:\.\d+)?|\.\d+)"
    r"(?:[eE][-+]?\d+)?"
)
_FRACTION = r"\\[dtc]?frac\s*" + r"\s*".join(
    rf"(?:\{{\s*(?P<{name}>[-+]?[\d.,]+)\s*\}}|(?P<{name}_digit>\d))" for name in ("above", "below")
)
_NUMBER = (
    rf"(?:(?<![{_OPERAND}])(?P<sign>[-+])\u2009?)?"
    rf"(?:(?<![{_LETTER}])(?<!\$[-+]){_CURRENCY}{_SPACE}?(?:(?P<inner>[-+])\u2009?)?|(?<![{_LETTER}\d.)]))"
    rf"(?:(?:(?P<whole>\d{{1,3}}){_SPACE}?)?{_FRACTION}"
    rf"|(?P<count>\d{{1,3}}){_SPACE}(?P<proper>\d{{1,2}}/\d{{1,2}})(?![\d/])"
    rf"|(?P<decimal>{_DECIMAL})(?:\s?(?:[×·*x]|\\times|\\cdot)\s?10(?P<tens>{_POWER})|(?P<power>{_POWER})"
    r"|(?P<divisors>(?:\s?/\s?(?:\d+(?:\.\d+)?|\.\d+))+))?)"
)
# A number inside a root, a quotient of names or a quotient of two values is not the value of the whole.
_UNREADABLE = (
    rf"\\(?:sqrt|[dtc]?frac|[dt]?binom|overline)(?:\s*(?:\[[^\]]{{0,20}}\]|{_BRACES}|\d))*|√\s*\d*|\\pi\b|π"
    r"|(?:±|\\pm\b)\s?\$?[\d.,]*"
)
# Exponents of units and indices of names do not count as numbers.
_SKIPPED = rf"\^\s?(?:{_BRACES}|[-+]?\d+)|(?<=[A-Za-z\d)}}\]])_(?:{_BRACES}|\d+)"
_TOKENS = re.compile(rf"{_SKIPPED}|(?P<number>{_NUMBER})|(?P<unreadable>{_UNREADABLE})")
_ALONE = re.compile(_NUMBER)


def plain(text: str) -> str:
    """Returns a text with its digits, signs, spaces and fractions in one form, and without invisible characters.

    Example:
        >>> plain("ｘ ＝ −５")
        'x = -5'
    """
    return text.translate(_PLAIN)


def last_number(text: str) -> Fraction | None:
    """Reads the last number in a text, exactly. None where there is none, or where the last is part of something that
    is not read, such as a root; a division by zero is not a number.

    Example:
        >>> last_number("It costs $1,250.50."), last_number("3/4"), last_number("5-3"), last_number("none")
        (Fraction(2501, 2), Fraction(3, 4), Fraction(3, 1), None)
        >>> last_number("答案是−5"), last_number("-\\\\frac{1}{2}"), last_number("\\\\sqrt{2}")
        (Fraction(-5, 1), Fraction(-1, 2), None)
    """
    # The deque stores one match at a time, because a long text has millions.
    tokens = (token for token in _TOKENS.finditer(_joined(text)) if token.lastgroup is not None)
    last = collections.deque(tokens, maxlen=1)
    return _value(last[0]) if last and last[0]["unreadable"] is None else None


def whole_number(text: str) -> Fraction | None:
    """Reads a text that is a number and nothing else.

    Example:
        >>> whole_number(" 1,000 "), whole_number("1,000 m")
        (Fraction(1000, 1), None)
    """
    match = _ALONE.fullmatch(_joined(text).strip())
    return None if match is None else _value(match)


def _joined(text: str) -> str:
    """Returns the plain text in which signs that are separate, or written as words, are joined to their numbers."""
    return _SIGN_APART.sub(" -", plain(text))


def _value(match: re.Match[str]) -> Fraction | None:
    try:
        if match["decimal"] is not None:
            value = _decimal(match)
        elif match["proper"] is not None:
            value = _mixed(match["count"], Fraction(match["proper"]))
        else:
            above, below = (match[name] or match[f"{name}_digit"] for name in ("above", "below"))
            value = _mixed(match["whole"], _fraction(above) / _fraction(below))
    except (ValueError, ZeroDivisionError):
        return None
    return -value if (match["sign"] == "-") != (match["inner"] == "-") else value


def _fraction(digits: str) -> Fraction:
    """Reads digits with commas, a sign and an exponent; refuses numbers of thousands of digits."""
    _, _, exponent = digits.lower().partition("e")
    if len(digits) > _MAX_DIGITS or (exponent and abs(int(exponent)) > _MAX_DIGITS):
        raise ValueError("too long")
    return Fraction(digits.replace(",", ""))


def _mixed(whole: str | None, part: Fraction) -> Fraction:
    if whole is None:
        return part
    if not 0 < part < 1:
        raise ValueError("a product of two numbers")
    return int(whole) + part


def _decimal(match: re.Match[str]) -> Fraction:
    digits = match["decimal"]
    if match["separator"] is not None:
        digits = digits.replace(match["separator"], "")
    elif "," in digits:
        digits = digits.replace(".", "").replace(",", ".")
    value = _fraction(digits)
    if match["tens"] is not None:
        return value * _power(Fraction(10), match["tens"])
    if match["power"] is not None:
        return _power(value, match["power"])
    if match["divisors"] is not None:
        _, divisor = match["divisors"].split("/")  # a text with several divisors, such as a date, is not read
        return value / _fraction(divisor.strip())
    return value


def _power(base: Fraction, written: str) -> Fraction:
    exponent = int(written.translate(_RAISED).strip(" ^{}\u2009"))
    if abs(exponent) * len(str(base)) > 2 * _MAX_DIGITS:
        raise ValueError("too long")
    return base**exponent


# The place of the answer in a completion: the whole text, a tag, the text after a marker, or a regular expression.

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


# Searches with a user's regular expression in a policy's text: within a time limit, and without holding the
# interpreter's lock.

PATTERN_SECONDS = 5.0
"""CPU seconds one search may take. Ordinary ones take microseconds; a nested repetition on a hostile text takes longer
than anybody waits.
"""


class SlowPattern(ValueError):
    """A search that passed its time limit."""


@cache
def compiled(pattern: str) -> Any:
    """Compiles the pattern for `last_match` and `matches_whole`; `.` in the latter matches line breaks.

    Args:
        pattern: a regular expression in the language of Python's `re`.

    Raises:
        ValueError: it does not compile.

    Example:
        >>> compiled("(a")
        Traceback (most recent call last):
        ...
        ValueError: '(a' is no regular expression (missing ) at position 2); write one that Python's re compiles, in single quotes in TOML
    """  # noqa: E501
    # Python's own re module cannot be interrupted, and holds the interpreter's lock while it searches.
    import regex

    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise ValueError(
            f"{pattern!r} is no regular expression ({error}); write one that Python's re compiles, in single quotes in"
            " TOML"
        ) from None


def last_match(pattern: str, text: str) -> Any:
    """Returns the last match in a text, None where there is none.

    Raises:
        SlowPattern: it took longer than `PATTERN_SECONDS`.

    Example:
        >>> last_match(r"x = (\\S+)", "x = 3, no, x = 4")[1]
        '4'
    """
    try:
        matches = compiled(pattern).finditer(text, concurrent=True, timeout=PATTERN_SECONDS)
        last = collections.deque(matches, maxlen=1)
    except TimeoutError:
        raise _slow(pattern, text) from None
    return last[0] if last else None


def matches_whole(pattern: str, text: str) -> bool:
    """Returns True where the whole text matches; `.` matches line breaks.

    Raises:
        SlowPattern: it took longer than `PATTERN_SECONDS`.

    Example:
        >>> matches_whole("a.b", "a\\nb")
        True
    """
    import regex

    compiled(pattern)
    try:
        return regex.fullmatch(pattern, text, regex.DOTALL, concurrent=True, timeout=PATTERN_SECONDS) is not None
    except TimeoutError:
        raise _slow(pattern, text) from None


def _slow(pattern: str, text: str) -> SlowPattern:
    return SlowPattern(
        f"{pattern!r} took longer than {PATTERN_SECONDS:g} s on {len(text)} characters, which counts as no match"
    )


def check_pattern(pattern: str | None) -> str | None:
    """Returns the pattern itself; refuses a text that is not a regular expression.

    Args:
        pattern: a regular expression, or nothing.

    Raises:
        ValueError: it does not compile.

    Example:
        >>> check_pattern("a+")
        'a+'
    """
    if pattern is not None:
        compiled(pattern)
    return pattern


@final
class Extract(Config):
    """Takes the answer out of a completion; the last place that fits counts, since a model may correct itself.

    With nothing set the whole completion is the answer. At most one of the three may be set. Nothing found gives None.
    A thought (`<think>...</think>`) holds no answer, and one that was cut off is followed by none. Only a `tag` that
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

    _compiles = field_validator("pattern")(check_pattern)

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
            match = last_match(self.pattern, text)
        except SlowPattern:
            return None
        return None if match is None else ((match[1] or "") if match.re.groups else match[0]).strip()


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
