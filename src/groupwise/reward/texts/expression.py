"""Expressions of numbers, names and functions, recognised by a parser that never evaluates them."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import final

_SPACE = re.compile(r"[ \t\r\n]*+")
_NUMBER = re.compile(r"(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d{1,2}(?!\d))?", re.ASCII)
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]++")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*+", re.ASCII)
_LETTER = re.compile(r"[A-Za-z]\d{0,2}", re.ASCII)
_EXPONENT = re.compile(r"\d{1,3}+(?:\.\d{0,4}+)?(?![\w.])", re.ASCII)
_MAX_DIGITS = 5000


class RefusedText(ValueError):
    """A text outside its grammar; the message names the place and the characters."""


@final
@dataclass(frozen=True)
class Expression:
    """Numbers, names, functions of one or two arguments, brackets and operators, and nothing else of Python.

    A power has a whole number or a simple fraction above it, or anything over the base `E`; the digits that all powers
    and products could come to are bounded.

    Args:
        operators: of `+ - * / **  << >> & | ^`.
        names: words that stand for something, next to single letters where `letters` says so.
        functions: words that may stand before brackets.
        letters: whether every single letter is a name, alone or with a number after it.
        integers: whether numbers are decimal whole numbers only.
        hexadecimal: whether `0x1f` is a number.
        max_length: largest number of characters of a text.
        max_depth: brackets, signs, functions and powers inside each other.
        max_digits: largest number of digits of one number.

    Example:
        >>> Expression(frozenset("+-*/")).check("(19 - 9) * 3")
        >>> Expression(frozenset("+-*/")).check("9**9")
        Traceback (most recent call last):
        ...
        groupwise.reward.texts.expression.RefusedText: '*9' at character 2 is not allowed there
    """

    operators: Collection[str]
    names: Collection[str] = frozenset()
    functions: Collection[str] = frozenset()
    letters: bool = False
    integers: bool = False
    hexadecimal: bool = False
    max_length: int = 2000
    max_depth: int = 40
    max_digits: int = 30

    def check(self, text: str, *names: str) -> None:
        """Refuses a text that is no such expression.

        Args:
            names: further names of this one, such as the variable of its puzzle.

        Raises:
            RefusedText: says where and what.
        """
        if len(text) > self.max_length:
            raise RefusedText(f"{len(text)} characters; at most {self.max_length} are read")
        _Reader(self, text, names).read_all()


@final
class _Reader:
    """One text, read once from left to right. Every rule returns how many digits its value could have."""

    def __init__(self, grammar: Expression, text: str, names: Collection[str]) -> None:
        self.grammar, self.text, self.place, self.depth = grammar, text, 0, 0
        self.names = {*grammar.names, *names}
        # The longest operators come first, so that `**` is not read as two `*`.
        self.binary = sorted((operator for operator in grammar.operators if operator != "**"), key=len, reverse=True)
        self._space()

    def read_all(self) -> None:
        self._sum()
        if self.place < len(self.text):
            raise self._refused()

    def _sum(self) -> int:
        self._deeper()
        digits = self._signed()
        while operator := next(
            (candidate for candidate in self.binary if self.text.startswith(candidate, self.place)), ""
        ):
            self._take(len(operator))
            digits = self._bounded(digits + self._signed())
        self.depth -= 1
        return digits

    def _signed(self) -> int:
        self._signs("+-")
        start = self.place
        digits = self._atom()
        if "**" in self.grammar.operators and self.text.startswith("**", self.place):
            base = self.text[start : self.place].strip()
            self._take(2)
            digits = self._bounded(digits * self._exponent() if base != "E" else self._power_of_e())
        return digits

    def _exponent(self) -> int:
        """Reads a whole number or fraction, signed or in brackets, and returns its size."""
        brackets = self._signs("(+-")
        exponent = self._whole_number()
        if brackets and self.text[self.place : self.place + 1] == "/":
            self._take(1)
            self._whole_number()
        for _ in range(brackets):
            self._expect(")")
        if self.text.startswith("**", self.place):
            raise self._refused()
        return max(exponent, 1)

    def _power_of_e(self) -> int:
        self._deeper()
        digits = self._signed()
        self.depth -= 1
        return digits

    def _signs(self, marks: str) -> int:
        """Reads signs (and brackets) before a number. Returns the number of brackets."""
        brackets = length = 0
        while (mark := self.text[self.place : self.place + 1]) and mark in marks:
            brackets, length = brackets + (mark == "("), length + 1
            if length > self.grammar.max_depth:
                raise self._too_deep()
            self._take(1)
        return brackets

    def _whole_number(self) -> int:
        match = _EXPONENT.match(self.text, self.place)
        if match is None:
            raise self._refused()
        self._take(len(match[0]))
        return math.ceil(float(match[0]))

    def _atom(self) -> int:
        if self.text.startswith("(", self.place):
            self._take(1)
            digits = self._sum()
            self._expect(")")
            return digits
        if match := _HEXADECIMAL.match(self.text, self.place) if self.grammar.hexadecimal else None:
            return self._number(match[0], 0)
        if match := _NUMBER.match(self.text, self.place):
            if self.grammar.integers and not match[0].isdigit():
                raise self._refused()
            exponent = re.split("[eE]", match[0])[1:]
            return self._number(match[0], abs(int(exponent[0])) if exponent else 0)
        match = _NAME.match(self.text, self.place)
        if match is None:
            raise self._refused()
        if self.text.startswith("(", match.end()) and match[0] in self.grammar.functions:
            self._take(len(match[0]) + 1)
            digits = self._sum()
            if self.text.startswith(",", self.place):
                self._take(1)
                digits = self._bounded(digits + self._sum())
            self._expect(")")
            return digits
        if match[0] not in self.names and not (self.grammar.letters and _LETTER.fullmatch(match[0])):
            raise self._refused()
        self._take(len(match[0]))
        return 1

    def _number(self, number: str, exponent: int) -> int:
        if len(number) > self.grammar.max_digits:
            raise RefusedText(f"a number of {len(number)} digits; at most {self.grammar.max_digits} are read")
        self._take(len(number))
        return len(number) + exponent

    def _bounded(self, digits: int) -> int:
        if digits > _MAX_DIGITS:
            raise RefusedText(f"its value could have {digits} digits; at most {_MAX_DIGITS} are computed")
        return digits

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > self.grammar.max_depth:
            raise self._too_deep()

    def _too_deep(self) -> RefusedText:
        return RefusedText(f"more than {self.grammar.max_depth} brackets, signs and powers inside each other")

    def _expect(self, mark: str) -> None:
        if not self.text.startswith(mark, self.place):
            raise self._refused()
        self._take(1)

    def _take(self, length: int) -> None:
        self.place += length
        self._space()

    def _space(self) -> None:
        match = _SPACE.match(self.text, self.place)
        assert match is not None
        self.place = match.end()

    def _refused(self) -> RefusedText:
        remainder = self.text[self.place : self.place + 20]
        return RefusedText(
            f"{remainder!r} at character {self.place} is not allowed there" if remainder else "it ends too early"
        )
