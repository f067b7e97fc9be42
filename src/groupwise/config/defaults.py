"""The bottom layer: the kind of a table that does not state its kind, and the table of a kind that stands alone."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any

from pydantic import BaseModel

from groupwise.config.shape import Shape


def fill_kinds(
    model: type[BaseModel] | UnionType, tree: Mapping[str, Any], defaults: BaseModel | Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the table with a `kind` in every table that lacks one: the kind of the default of its key. A word where a
    table is meant, as in `optimiser = "adamw"`, is the kind of the table.

    A lower layer is filled before another layer is merged over it, so that an upper layer which names the same kind
    again keeps the keys beside it.

    Args:
        model: the class of the table, or a union of classes whose keys it may have.
        defaults: a whole configuration that lies below the table, as an object or as a table; it replaces the model's
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
    """Returns an upper layer with a table of its kind for every word where a table is meant, so that `trust = "clip"`
    is merged as `trust = {kind = "clip"}` is: it keeps the keys of a lower table of that kind.

    Args:
        model: the class of the table, or a union of classes whose keys it may have.
        below: the layer over which the table will be merged; its kinds say which tables may stand inside them.

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
        # Only fields count, since people write only fields: an entry of a named chain has a kind in its class and none
        # in its table.
        return getattr(table, key) if key in type(table).model_fields else None
    return table.get(key) if isinstance(table, Mapping) else None
