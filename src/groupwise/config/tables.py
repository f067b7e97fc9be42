"""Plain tables, from any author: their limits, `key=value` changes, and their differences as dotted keys."""

import datetime
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from groupwise.config.errors import ConfigError, Problem

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
    # A row of plain texts, which most data have, in a tenth of the time.
    if not config and isinstance(tree, dict) and all(_is_ascii(text) for entry in tree.items() for text in entry):
        return
    if problem := _unusable(tree, "", config, MOST_LEVELS):
        raise ConfigError(problem, source)


def _is_ascii(value: Any) -> bool:
    return isinstance(value, str) and value.isascii()


def _unusable(value: Any, path: str, config: bool, levels: int) -> Problem | None:
    """Returns what is wrong with a value or inside it; it lies at a path, and may have so many levels inside it."""
    shown = f"{path[:120]}..." if len(path) > 120 else path
    if levels < 0:
        return Problem(shown, f"tables and lists lie deeper inside each other than {MOST_LEVELS} levels; write fewer")
    if isinstance(value, Mapping):
        for key in map(str, value):
            if message := _value_problem(key, config):
                return Problem(f"{shown}: the key {key[:60]!r}", message)
        inside = [(f"{path}.{key}" if path else str(key), entry) for key, entry in value.items()]
    elif isinstance(value, list | tuple):
        inside = [(f"{path}[{place}]", entry) for place, entry in enumerate(value)]
    else:
        message = _value_problem(value, config)
        return Problem(f"{shown} = {_value_text(value)}", message) if message else None
    return next(filter(None, (_unusable(entry, inner, config, levels - 1) for inner, entry in inside)), None)


def _value_problem(value: Any, config: bool) -> str:
    if isinstance(value, str):
        if config and "\0" in value:
            return "holds the character NUL; take it out"
        half = None if value.isascii() else re.search(r"[\ud800-\udfff]", value)
        if half is not None:
            return (
                f"character {half.start() + 1} is {half.group()!r}, half of a surrogate pair, which UTF-8 cannot hold;"
                " take it out"
            )
    elif isinstance(value, int) and (abs(value) >= 10**_MOST_DIGITS if config else value not in _INTEGERS):
        return "is beyond 64 bits; write a smaller number"
    elif config and isinstance(value, float) and math.isnan(value):
        return "is not a number; write one"
    return ""


def _value_text(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS:
        # Python refuses to format integers of more than 4,300 digits.
        return f"a number of about {int(value.bit_length() * math.log10(2))} digits"
    return repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:77]}..."


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


# Overrides `key=value` of a command line as a nested table: keys are dotted, values are TOML, bare words are text.
# Quoted text is matched first, so that words inside it are not quoted again.
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'|[^\s,\[\]{}="\']+')
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _toml(text: str) -> Any:
    value = tomllib.loads(f"value = {text}")["value"]
    return text if isinstance(value, datetime.date | datetime.time) else value


def _scalar(text: str) -> Any:
    if text == "null":
        return None
    try:
        return _toml(text)
    except (ValueError, RecursionError):
        # People write `.3` and `1.` in a shell, which TOML does not read as numbers.
        return float(text) if _NUMBER.fullmatch(text) else text


def _quote_bare_words(text: str) -> str:
    def quote(match: re.Match[str]) -> str:
        token = match.group()
        is_word = token[0] not in "\"'" and isinstance(_scalar(token), str)
        return '"' + token.replace("\\", "\\\\") + '"' if is_word else token

    return _TOKEN.sub(quote, text)


def parse_value(text: str) -> Any:
    """Parses a TOML value, or a bare word as text; `null` is None.

    Args:
        text: the text after the equals sign.

    Returns:
        a number, a text, a flag, None, a list or a table.

    Raises:
        ConfigError: quotes or brackets that do not close.

    Example:
        >>> parse_value("1e-5"), parse_value("true"), parse_value("gaussian"), parse_value(".3")
        (1e-05, True, 'gaussian', 0.3)
        >>> parse_value("[1, 2]"), parse_value("[clip, gaussian]"), parse_value("'5'")
        ([1, 2], ['clip', 'gaussian'], '5')
    """
    text = text.strip()
    check_dots(text)
    if text[:1] not in ("[", "{", '"', "'"):
        return _scalar(text)
    for attempt in (text, _quote_bare_words(text) if text[0] == "[" else text):
        try:
            return _toml(attempt)
        except (ValueError, RecursionError):
            continue
    raise ConfigError(
        f"the value {_cut(text)} is not valid TOML; close its quotes and brackets, for example key='[1, 2]' or"
        " key='\"text\"'"
    )


def parse_overrides(items: Iterable[str]) -> dict[str, Any]:
    """Parses `key=value` items into a nested table; of two equal keys the later one wins.

    Args:
        items: texts `key=value`.

    Returns:
        nested tables.

    Raises:
        ConfigError: an item without `=`, an unreadable key, or a key that is both a value and a table.

    Example:
        >>> parse_overrides(["train.num_steps=5", "trust.kind=gaussian", "trust.sigma=0.3"])
        {'train': {'num_steps': 5}, 'trust': {'kind': 'gaussian', 'sigma': 0.3}}
    """
    tree: dict[str, Any] = {}
    for override in items:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"{_cut(override)} is not an override; write key=value, for example trust.kind=gaussian or"
                " train.num_steps=50"
            )
        check_dots(key)
        try:
            nested = tomllib.loads(f"{key.strip()} = 0")
        except (ValueError, RecursionError):
            raise ConfigError(
                f"the key {_cut(key)} cannot be read; write names joined by dots, for example trust.sigma=0.3"
            ) from None
        check_plain(nested)
        names: list[str] = []
        while isinstance(nested, dict):
            ((name, nested),) = nested.items()
            names.append(name)
        put(tree, names, parse_value(text), _cut(override))
    check_plain(tree)
    return tree


def put(tree: dict[str, Any], names: list[str], value: Any, label: str, *, once: bool = False) -> None:
    """Writes a value into nested tables. Tables are merged, and a word over a table is its kind.

    Args:
        tree: the tables, which are changed.
        names: the key's parts.
        value: what is written there.
        label: the key or the override, for errors.
        once: whether a key may not be written again; otherwise the later value wins.

    Raises:
        ConfigError: a key is written both as a value and as a table.

    Example:
        >>> tree = {"trust": "gaussian"}
        >>> put(tree, ["trust", "sigma"], 0.3, "trust.sigma")
        >>> tree
        {'trust': {'kind': 'gaussian', 'sigma': 0.3}}
    """
    for name in reversed(names[1:]):
        value = {name: value}
    name, below = names[0], tree.get(names[0])
    if isinstance(below, dict) and isinstance(value, str):
        value = {"kind": value}
    if isinstance(below, str) and isinstance(value, Mapping):
        tree[name] = below = {"kind": below}
    if isinstance(below, dict) and isinstance(value, Mapping):
        for inner, entry in value.items():
            put(below, [inner], entry, label, once=once)
    elif name in tree and isinstance(below, dict) != isinstance(value, Mapping):
        raise ConfigError(f"{label} makes {name!r} both a value and a table; keep one")
    elif once and name in tree:
        raise ConfigError(f"{label}: is written twice, {below!r} and {value!r}; write it once")
    else:
        tree[name] = value


def _cut(text: str) -> str:
    return repr(text) if len(text) <= 200 else f"{text[:200]!r}..."


def flatten(tree: Any, path: str = "") -> dict[str, Any]:
    """Returns dotted keys and their values; an empty table is a value, and so is a list without tables.

    Args:
        path: the key of the table, with which every key begins.

    Returns:
        one entry a value, in the order of the table.

    Example:
        >>> flatten({"trust": {"kind": "clip", "low": 0.2}})
        {'trust.kind': 'clip', 'trust.low': 0.2}
    """
    if isinstance(tree, Mapping) and (tree or not path):
        entries = [(f"{path}.{key}" if path else str(key), value) for key, value in tree.items()]
    elif isinstance(tree, list | tuple) and any(isinstance(element, Mapping) for element in tree):
        entries = [(f"{path}[{place}]", element) for place, element in enumerate(tree)]
    else:
        return {path: dict(tree) if isinstance(tree, Mapping) else tree}
    return {key: value for inner, entry in entries for key, value in flatten(entry, inner).items()}


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
