"""The bottom layer: what a table is of when it does not say its kind."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any

from pydantic import BaseModel

from groupwise.config.shape import Shape


def fill_kinds(
    model: type[BaseModel] | UnionType, tree: Mapping[str, Any], defaults: BaseModel | Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The same table, where every table without a `kind` has the kind of the default of its key.

    What lies below is filled before another layer is merged over it, so that naming the kind in force again keeps the
    keys beside it.

    Args:
        model: the class of the table, or a union of classes whose keys it may have.
        tree: the table.
        defaults: a whole configuration that lies below the table, as an object or as a table, in place of the model's
            own defaults.

    Returns:
        A new table; what is in no place of `model` is left as it is.

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
    filled = _fill(Shape.of(model), tree, defaults)
    assert isinstance(filled, dict)
    return filled


def _fill(shape: Shape, value: Any, default: Any) -> Any:
    if isinstance(value, list):
        return [_fill(shape.inside(index) or Shape(()), item, None) for index, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    tree = dict(value)
    kind = _entry(default, "kind")
    if kind is not None and "kind" not in tree:
        tree = {"kind": kind, **tree}
    shape = shape.narrow(tree["kind"]) if isinstance(tree.get("kind"), str) else shape
    # What lies below says nothing about a table of another kind.
    below = default if tree.get("kind") == kind else None
    for key, item in tree.items():
        inner = shape.inside(key)
        if inner is not None:
            known = _entry(below, key)
            tree[key] = _fill(inner, item, shape.default(key) if known is None else known)
    return tree


def _entry(table: Any, key: str) -> Any:
    if isinstance(table, BaseModel):
        # Only what a person may write: an entry of a named chain has a kind of its class, and none in its table.
        return getattr(table, key) if key in type(table).model_fields else None
    return table.get(key) if isinstance(table, Mapping) else None
