"""The reader of numbers that all rewards share: digits of any script, with signs, currencies, thousands separators,
powers and fractions, as people write them.
"""

from __future__ import annotations

import collections
import re
import unicodedata
from fractions import Fraction

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
# A sign counts only where no operand stands before it: the last number of "5-3" is 3.
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
# Three ways: 1.234,56 with its separators exchanged; 1,234.56 or 1234.56; and .56.
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
# A part of a root, of a quotient of names or of two values is not its value.
_UNREADABLE = (
    rf"\\(?:sqrt|[dtc]?frac|[dt]?binom|overline)(?:\s*(?:\[[^\]]{{0,20}}\]|{_BRACES}|\d))*|√\s*\d*|\\pi\b|π"
    r"|(?:±|\\pm\b)\s?\$?[\d.,]*"
)
# Exponents of units and indices of names are no numbers of their own.
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
    is not read, such as a root; a division by zero is no number.

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
    """Returns the plain text with signs that stand apart, or are words, at their numbers."""
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
    """Reads digits with commas, a sign and an exponent; refuses what would be a number of thousands of digits."""
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
        _, divisor = match["divisors"].split("/")  # of more than one, as in a date, nothing is read
        return value / _fraction(divisor.strip())
    return value


def _power(base: Fraction, written: str) -> Fraction:
    exponent = int(written.translate(_RAISED).strip(" ^{}\u2009"))
    if abs(exponent) * len(str(base)) > 2 * _MAX_DIGITS:
        raise ValueError("too long")
    return base**exponent
