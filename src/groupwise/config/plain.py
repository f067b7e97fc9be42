"""Limits on any table, whoever wrote it: a depth that people write, whole numbers that a key could mean, and texts that
can be stored.

The checks use no recursion, so that a deep table cannot end the program.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from groupwise.config.errors import ConfigError, Problem

MOST_LEVELS = 64
"""The most levels of tables inside tables: the deepest configuration has a dozen."""

_MOST_PARTS = 200
_DOTTED = re.compile(rf"""(?:\.[ \t]*[\w"'-]{{1,64}}[ \t]*){{{_MOST_PARTS}}}""")
_INTEGERS = range(-(2**63), 2**64)
_MOST_DIGITS = 40
"""The digits of a whole number that no key allows; a smaller number meets the bounds of its key, whose error says
more.
"""


def check_plain(tree: Any, source: str = "", *, config: bool = True) -> None:
    """Refuses a table that no part of the program could use.

    Args:
        tree: tables, lists, texts and numbers.
        source: the name of the table in errors.
        config: true for a configuration, which may not contain NaN, nor NUL since its texts may become names of files;
            false for data, which may contain both.

    Raises:
        ConfigError: a value is beyond the limits; the message names its key.

    Example:
        >>> check_plain({"seed": 10**80}, "a.toml")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: a.toml: seed = a number of about 80 digits: is beyond 64 bits; write a smaller number
    """  # noqa: E501
    waiting: list[tuple[str, Any, int]] = [("", tree, 0)]
    while waiting:
        path, value, level = waiting.pop()
        if level > MOST_LEVELS:
            raise ConfigError(
                Problem(
                    _cut(path), f"tables and lists lie deeper inside each other than {MOST_LEVELS} levels; write fewer"
                ),
                source,
            )
        if isinstance(value, Mapping):
            for key, entry in value.items():
                if problem := _text_problem(str(key), config):
                    raise ConfigError(Problem(f"{_cut(path)}: the key {str(key)[:60]!r}", problem), source)
                if level == MOST_LEVELS or not _is_plain_text(entry):
                    waiting.append((f"{path}.{key}" if path else str(key), entry, level + 1))
        elif isinstance(value, list | tuple):
            waiting += [
                (f"{path}[{index}]", entry, level + 1)
                for index, entry in enumerate(value)
                if level == MOST_LEVELS or not _is_plain_text(entry)
            ]
        elif problem := _value_problem(value, config):
            raise ConfigError(Problem(f"{_cut(path)} = {_value_text(value)}", problem), source)


def check_dots(text: str, source: str = "") -> None:
    """Refuses TOML with a key of hundreds of parts before it is parsed: the time of the parser grows with their square.

    Args:
        text: TOML.
        source: the name of the text in errors.

    Raises:
        ConfigError: the text has such a key.

    Example:
        >>> check_dots("trust.kind = 'clip'")
    """
    if _DOTTED.search(text):
        raise ConfigError(f"a key has more than {_MOST_PARTS} parts joined by dots; write fewer", source)


def why_unreadable(error: Exception) -> str:
    """Returns the reason of a parser of TOML or JSON, in words about the file rather than about Python.

    Args:
        error: the exception of the parser.

    Example:
        >>> why_unreadable(RecursionError("maximum recursion depth exceeded"))
        'its tables and lists lie too deep inside each other'
    """
    if isinstance(error, RecursionError):
        return "its tables and lists lie too deep inside each other"
    return (
        "a whole number in it has more than 4,300 digits" if "integer string conversion" in str(error) else str(error)
    )


def _is_plain_text(value: Any) -> bool:
    """Returns whether a value is such text as stands in nearly every place, whose place need not be written down."""
    return isinstance(value, str) and value.isascii() and "\0" not in value


def _value_problem(value: Any, config: bool) -> str:
    if isinstance(value, str):
        return _text_problem(value, config)
    if isinstance(value, int) and (abs(value) >= 10**_MOST_DIGITS if config else value not in _INTEGERS):
        return "is beyond 64 bits; write a smaller number"
    if config and isinstance(value, float) and math.isnan(value):
        return "is not a number; write one"
    return ""


def _text_problem(text: str, config: bool) -> str:
    if config and "\0" in text:
        return "holds the character NUL; take it out"
    if text.isascii():
        return ""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return (
            f"character {error.start + 1} is {text[error.start]!r}, half of a surrogate pair, which UTF-8 cannot hold;"
            " take it out"
        )
    return ""


def _cut(path: str) -> str:
    return path if len(path) <= 120 else f"{path[:120]}..."


def _value_text(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS:
        # Python refuses to write out a number of many thousand digits.
        return f"a number of about {int(value.bit_length() * math.log10(2))} digits"
    return repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:77]}..."
