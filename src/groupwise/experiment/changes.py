"""Keyword arguments of `groupwise.train` as the nested table of changes that an experiment takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from groupwise.config import ConfigError, check_plain

_DEEPEST = 64


def nested_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns changes as nested tables: `{"train.num_steps": 3}` and `train=dict(num_steps=3)` say the same.

    Args:
        changes: keys of an experiment, dotted or nested, with their values.

    Raises:
        ConfigError: a value of a type that no configuration holds, or a key that is written twice.

    Example:
        >>> nested_changes({"train.num_steps": 3, "train": {"group_size": 4}, "seed": 1})
        {'train': {'num_steps': 3, 'group_size': 4}, 'seed': 1}
    """
    tree: dict[str, Any] = {}
    for key, value in changes.items():
        _lay(tree, key.split("."), _plain(value, key), key)
    check_plain(tree, "changes")
    return tree


def _lay(tree: dict[str, Any], path: list[str], value: Any, key: str) -> None:
    """Writes a value below a path; tables are joined, and a value beside another one of the same key is refused."""
    if not all(path):
        raise ConfigError(f"the key {key!r} cannot be read; write names joined by dots, for example 'train.num_steps'")
    node = tree
    for name in path[:-1]:
        # A word is the kind of its table: `{"trust": "gaussian", "trust.sigma": 0.3}`.
        if isinstance(word := node.setdefault(name, {}), str):
            node[name] = {"kind": word}
        node = node[name]
        if not isinstance(node, dict):
            raise ConfigError(f"{key}: {name!r} is a value in another argument and a table here; write it once")
    if path[-1] not in node:
        node[path[-1]] = value
    elif isinstance(node[path[-1]], dict) and isinstance(value, str):
        _lay(node, [path[-1], "kind"], value, key)
    elif isinstance(node[path[-1]], dict) and isinstance(value, dict):
        for name, inner in value.items():
            _lay(node[path[-1]], [name], inner, f"{key}.{name}")
    else:
        raise ConfigError(f"{key}: is written twice, {node[path[-1]]!r} and {value!r}; write it once")


def _plain(value: Any, key: str, depth: int = 0) -> Any:
    """Returns a value as a configuration holds it: tables, lists, texts, numbers, flags, None."""
    if depth > _DEEPEST:
        raise ConfigError(f"{key}: tables and lists lie deeper inside each other than {_DEEPEST} levels; write fewer")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(name): _plain(inner, f"{key}.{name}", depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, f"{key}[{place}]", depth + 1) for place, inner in enumerate(value)]
    if callable(getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:
        return value.item()
    raise ConfigError(
        f"{key}: an object of type {type(value).__qualname__} was given; a setting is a number, a text, a flag, None, a"
        " list or a dict; functions go to rewards= or callbacks=, rows to data="
    )
