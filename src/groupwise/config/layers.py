"""Layers of plain tables: the later one wins, key by key, and a changed `kind` starts its table anew."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

Tree = dict[str, Any]


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """Lays the table `over` on the table `base`; changes neither.

    Tables merge key by key, everything else is replaced. Where `over` names another `kind` than `base`, that table
    starts from the defaults of the new kind: the keys of the old kind are dropped, those beside the new kind stay.
    `None` over a table removes it, so that an optional table or a named entry can be taken back; `None` over a value is
    that value.

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
