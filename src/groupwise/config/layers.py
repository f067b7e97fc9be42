"""Layers of plain tables: the later one wins, key by key, and a changed `kind` starts its table anew."""

from __future__ import annotations

import copy
import datetime
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from groupwise.config.errors import ConfigError
from groupwise.config.plain import check_dots, check_plain

Tree = dict[str, Any]


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """Lays the table `over` on the table `base`; changes neither.

    Tables merge key by key, everything else is replaced. Where `over` names another `kind` than `base`, that table
    starts from the defaults of the new kind: the keys of the old kind are dropped, and keys written with the new kind
    stay. `None` over a table removes it, so that an optional table or a named entry can be taken back; `None` over a
    value is that value.

    Args:
        over: the upper table, whose values win.

    Returns:
        a new table.

    Example:
        >>> merge({"trust": {"kind": "clip", "low": 0.2}}, {"trust": {"low": 0.1}})
        {'trust': {'kind': 'clip', 'low': 0.1}}
        >>> merge({"trust": {"kind": "clip", "low": 0.2}}, {"trust": {"kind": "gaussian", "sigma": 0.3}})
        {'trust': {'kind': 'gaussian', 'sigma': 0.3}}
    """
    if "kind" in over and over["kind"] != base.get("kind"):
        return {key: copy.deepcopy(value) for key, value in over.items()}
    merged = copy.deepcopy(dict(base))
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = merge(below, value)
        elif value is None and isinstance(below, Mapping):
            del merged[key]
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def states(tree: Mapping[str, Any], path: Iterable[str]) -> bool:
    """Returns whether a table states a value at a path, or one value in the place of a table above it.

    Args:
        tree: a nested table.
        path: keys from the outermost on.

    Example:
        >>> states({"trust": "clip"}, ["trust", "low"]), states({"trust": {"high": 0.3}}, ["trust", "low"])
        (True, False)
    """
    node: Any = tree
    for name in path:
        if not isinstance(node, Mapping):
            return True
        if name not in node:
            return False
        node = node[name]
    return True


# Overrides `key=value` of a command line as a nested table: keys are dotted, values are TOML, bare words are text.
# Quoted text is matched first, so that words inside it are not quoted again.
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'|[^\s,\[\]{}="\']+')
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _toml(text: str) -> Any:
    value = tomllib.loads(f"value = {text}")["value"]
    if isinstance(value, (datetime.date, datetime.time)):
        return text
    return value


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
        if token[0] in "\"'":
            return token
        value = _scalar(token)
        return token if value is None or not isinstance(value, str) else '"' + token.replace("\\", "\\\\") + '"'

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
        names: list[str] = []
        check_plain(nested)
        while isinstance(nested, dict):
            (name, nested), *_ = nested.items()
            names.append(name)
        set_nested(tree, names, parse_value(text), override)
    check_plain(tree)
    return tree


def set_nested(tree: Tree, names: Sequence[str], value: Any, label: str, *, once: bool = False) -> None:
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
        >>> set_nested(tree, ["trust", "sigma"], 0.3, "trust.sigma")
        >>> tree
        {'trust': {'kind': 'gaussian', 'sigma': 0.3}}
    """
    *above, last = names
    for name in above:
        if isinstance(word := tree.setdefault(name, {}), str):
            tree[name] = {"kind": word}
        tree = tree[name]
        if not isinstance(tree, dict):
            raise ConfigError(f"{_cut(label)} needs {name!r} to be a table, and it is written as a value too; keep one")
    below = tree.get(last)
    if isinstance(below, dict) and isinstance(value, str):
        value = {"kind": value}
    if isinstance(below, dict) and isinstance(value, Mapping):
        for name, inner in value.items():
            set_nested(below, [name], inner, f"{label}.{name}", once=once)
    elif isinstance(below, dict):
        raise ConfigError(f"{_cut(label)} makes {last!r} a value, and it is written as a table too; keep one")
    elif once and last in tree:
        raise ConfigError(f"{label}: is written twice, {below!r} and {value!r}; write it once")
    else:
        tree[last] = value


def _cut(text: str) -> str:
    return repr(text) if len(text) <= 200 else f"{text[:200]!r}..."
