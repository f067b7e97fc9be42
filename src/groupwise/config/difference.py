"""The differences between two configurations, as dotted keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
