"""Limits on any table, from any author: its depth, the size of whole numbers, and texts that can be stored.

The checks use no recursion, so that a deep table cannot end the program.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import UnionType
from typing import Any

from pydantic import BaseModel

from groupwise.config.errors import ConfigError, Problem
from groupwise.config.shape import Shape

MOST_LEVELS = 64
"""The most levels of tables inside tables: the deepest configuration has a dozen."""

_MOST_PARTS = 200
_DOTTED = re.compile(rf"""(?:\.[ \t]*[\w"'-]{{1,64}}[ \t]*){{{_MOST_PARTS}}}""")
_INTEGERS = range(-(2**63), 2**64)
_MOST_DIGITS = 40
"""A whole number with this many digits is beyond every key. The error of a smaller number comes from the bounds of its
key, and is more exact.
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
    """Returns the reason why a parser of TOML or JSON failed, in words about the file rather than about Python.

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
    """Returns whether a value is ASCII text without NUL, which needs no further check."""
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
        # Python refuses to format integers of more than 4,300 digits.
        return f"a number of about {int(value.bit_length() * math.log10(2))} digits"
    return repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:77]}..."


# Kinds: a table without `kind` gets its default, and a bare word becomes a table of that kind.


def fill_kinds(
    model: type[BaseModel] | UnionType, tree: Mapping[str, Any], defaults: BaseModel | Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the table with a `kind` in every table that lacks one: the kind of the default of its key. A word where a
    table is meant, as in `optimiser = "adamw"`, is the kind of the table.

    A lower layer is filled before another layer is merged over it, so that an upper layer which names the same kind
    again keeps the other keys of the table.

    Args:
        model: the class of the table, or a union of classes whose keys it may have.
        defaults: a whole configuration that is below the table, as an object or as a table; it replaces the model's
            defaults.

    Returns:
        a new table; keys that `model` does not have keep their values.

    Example:
        >>> from groupwise.config import Config
        >>> class Clip(Config):
        ...     kind: str = "clip"
        ...     low: float = 0.2
        >>> class Loss(Config):
        ...     trust: Clip = Clip()
        >>> fill_kinds(Loss, {"trust": {"low": 0.1}})
        {'trust': {'kind': 'clip', 'low': 0.1}}
    """
    filled = _fill(Shape.of(model), tree, defaults, stated=True)
    assert isinstance(filled, dict)
    return filled


def words_as_kinds(
    model: type[BaseModel] | UnionType, tree: Mapping[str, Any], below: BaseModel | Mapping[str, Any]
) -> dict[str, Any]:
    """Returns an upper layer with `{kind = "clip"}` for a bare word such as `trust = "clip"`. Merged over a table of
    the same kind it keeps the keys of that table.

    Args:
        model: the class of the table, or a union of classes whose keys it may have.
        below: the layer over which the table will be merged; its kinds say which tables are allowed inside them.

    Example:
        >>> from groupwise.objective import Objective
        >>> words_as_kinds(Objective, {"trust": "clip"}, {})
        {'trust': {'kind': 'clip'}}
    """
    filled = _fill(Shape.of(model), tree, below, stated=False)
    assert isinstance(filled, dict)
    return filled


def _fill(shape: Shape, value: Any, default: Any, stated: bool) -> Any:
    if isinstance(value, list):
        return [_fill(shape.inside(index) or Shape(()), element, None, stated) for index, element in enumerate(value)]
    if isinstance(value, str) and shape.is_kind(value):
        value = {"kind": value}
    if not isinstance(value, Mapping):
        return value
    tree = dict(value)
    default_kind = _entry(default, "kind")
    kind = tree.get("kind", default_kind)
    if stated and kind is not None and "kind" not in tree:
        tree = {"kind": kind, **tree}
    shape = shape.narrow(kind) if isinstance(kind, str) else shape
    # The defaults below do not apply to a table of another kind.
    below = default if kind == default_kind else None
    for key, entry in tree.items():
        inner = shape.inside(key)
        if inner is not None:
            default_below = _entry(below, key)
            tree[key] = _fill(inner, entry, shape.default(key) if default_below is None else default_below, stated)
    return tree


def _entry(table: Any, key: str) -> Any:
    if isinstance(table, BaseModel):
        # Only fields count, since people write only fields. An entry of a named chain has its kind in its class and
        # none in its table.
        return getattr(table, key) if key in type(table).model_fields else None
    return table.get(key) if isinstance(table, Mapping) else None


# The differences between two configurations, as dotted keys.


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns dotted keys and their values; an empty table is a value, and so is a list without tables.

    Args:
        prefix: the beginning of every key.

    Returns:
        one entry a value, in the order of the table.

    Example:
        >>> flatten({"trust": {"kind": "clip", "low": 0.2}})
        {'trust.kind': 'clip', 'trust.low': 0.2}
    """
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flatten(value, f"{prefix}{key}")
    return flat


def _flatten(value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        return flatten(value, f"{path}.")
    if isinstance(value, list | tuple) and any(isinstance(element, Mapping) for element in value):
        return {
            key: inner
            for index, element in enumerate(value)
            for key, inner in _flatten(element, f"{path}[{index}]").items()
        }
    return {path: dict(value) if isinstance(value, Mapping) else value}


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns the dotted keys whose values differ, each with (before, after); an absent key counts as None.

    Returns:
        key -> (value before, value after), in the order of `before`.

    Example:
        >>> difference({"trust": {"kind": "clip", "low": 0.2}}, {"trust": {"kind": "clip", "low": 0.1}})
        {'trust.low': (0.2, 0.1)}
    """
    # An empty table has the same meaning as absent keys.
    old, new = ({key: value for key, value in flatten(tree).items() if value != {}} for tree in (before, after))
    return {key: (old.get(key), new.get(key)) for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key)}


_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(value: object) -> str:
    """Returns a text whose control characters are replaced by their visible symbols, and those that turn the direction
    of writing by their numbers.

    A reader sees every character, and no terminal code survives a copy.

    Example:
        >>> visible("a\\u202eb")
        'a[U+202E]b'
        >>> visible("a\\x00b\\x1b[1m")
        'a\u2400b\u241b[1m'
    """
    text = _BIDI.sub(lambda found: f"[U+{ord(found[0]):04X}]", str(value))
    return "".join(
        chr(0x2400 + ord(char)) if char < " " and char not in "\n\t" else "\u2421" if char == "\x7f" else char
        for char in text
    )
