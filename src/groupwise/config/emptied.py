"""What `{}` means where a table's entries are named by the user: none of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from groupwise.config.shape import Shape


def without_emptied(model: type[BaseModel], base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The table below, without the named entries that the table above empties: `merge` alone would leave them all.

    A table whose keys are fixed keeps them: there `{}` says nothing.

    Args:
        model: what both tables are of.
        base: what lies below.
        over: what will be laid on it.

    Returns:
        a new table.

    Example:
        >>> from groupwise.config import Config
        >>> class Loss(Config):
        ...     low: float = 0.2
        >>> class Run(Config):
        ...     loss: Loss = Loss()
        ...     weights: dict[str, float] = {}
        >>> without_emptied(Run, {"weights": {"a": 1.0}, "loss": {"low": 0.1}}, {"weights": {}, "loss": {}})
        {'weights': {}, 'loss': {'low': 0.1}}
    """
    return _without(Shape.of(model), base, over)


def _without(shape: Shape, base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    kept = dict(base)
    for key, value in over.items():
        below, inner = kept.get(key), shape.inside(key)
        if inner is None or not isinstance(value, Mapping) or not isinstance(below, Mapping):
            continue
        if not value and inner.named:
            kept[key] = {}
        else:
            kind = below.get("kind")
            kept[key] = _without(inner.narrow(kind) if isinstance(kind, str) else inner, below, value)
    return kept
