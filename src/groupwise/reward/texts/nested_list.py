"""Lists inside each other, recognised by a parser that never evaluates them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import final

from groupwise.reward.texts.expression import RefusedText

# No backslash and no quote within: nothing is escaped, and no two strings touch.
_STRING = re.compile(r"'[^'\"\\\x00-\x1f\x7f]*+'|\"[^'\"\\\x00-\x1f\x7f]*+\"")
_ITEM = re.compile(rf"[-+]?\d{{1,30}}+(?:\.\d{{0,30}}+)?(?![\w.])|{_STRING.pattern}", re.ASCII)


@final
@dataclass(frozen=True)
class Nested:
    """Lists (or tuples) of whole and decimal numbers and of plain words in quotes, inside each other.

    Args:
        max_length: largest number of characters of a text.
        max_depth: largest number of brackets inside each other.

    Example:
        >>> Nested().check("[[0, 1], ['Q', \\"_\\"]]")
        >>> Nested().check("[open('x')]")
        Traceback (most recent call last):
        ...
        groupwise.reward.texts.expression.RefusedText: "open('x')]" at character 1 is not allowed there
    """

    max_length: int = 20_000
    max_depth: int = 4

    def check(self, text: str, *names: str) -> None:
        """Refuses a text that is no such list.

        Args:
            names: no use is made of them.

        Raises:
            RefusedText: says where and what.
        """
        if len(text) > self.max_length:
            raise RefusedText(f"{len(text)} characters; at most {self.max_length} are read")
        place, closing, value = 0, [], True
        while place < len(text):
            mark = text[place]
            if mark in " \t\r\n":
                place += 1
            elif mark in "[(" and value and len(closing) < self.max_depth:
                closing.append("]" if mark == "[" else ")")
                place += 1
            elif closing and mark == closing[-1]:
                closing.pop()
                value, place = False, place + 1
            elif mark == "," and closing and not value:
                value, place = True, place + 1
            elif value and closing and (match := _ITEM.match(text, place)):
                value, place = False, match.end()
            else:
                raise RefusedText(f"{text[place : place + 20]!r} at character {place} is not allowed there")
        if closing or value:
            raise RefusedText("it ends too early")
