"""Strict validation of a plain table into a configuration object, with all problems reported at once.

The table goes through JSON, so that TOML files, overrides and a saved `config.json` are read by one set of rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from groupwise.config.defaults import fill_kinds
from groupwise.config.errors import ConfigError, Problem, nearest
from groupwise.config.open_kinds import flat
from groupwise.config.plain import check_plain
from groupwise.config.shape import Shape

M = TypeVar("M", bound=BaseModel)


def validate(model: type[M], tree: Mapping[str, Any], source: str = "") -> M:
    """A `model` from a plain table, or every reason why not.

    Args:
        model: the configuration class.
        tree: nested tables of JSON-able values.
        source: what the error calls the table, usually a file name.

    Raises:
        ConfigError: unknown keys, wrong types, unknown kinds, missing keys, refused combinations.

    Example:
        >>> from groupwise.config import Config
        >>> class Clip(Config):
        ...     low: float = 0.2
        >>> validate(Clip, {"low": 0.1})
        Clip(low=0.1)
        >>> validate(Clip, {"lo": 0.1}, source="a.toml")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: a.toml: lo = 0.1: unknown key; allowed: low; did you mean low?
    """
    check_plain(tree, source)
    tree = fill_kinds(model, tree)
    try:
        return model.model_validate_json(json.dumps(tree, default=str))
    except ValidationError as error:
        shape = Shape.of(model)
        found = [_problem(shape, inner) for details in error.errors(include_url=False) for inner in flat(details)]
    raise ConfigError([problem for _, problem in _without_other_branches(tree, found)], source=source) from None


_TYPE_ERRORS = re.compile(
    r".*_(type|parsing|from_float)$|is_instance_of|literal_error|none_required|model_attributes_type"
)

# What pydantic calls the things that a TOML file calls otherwise.
_WORDS = {
    "an object": "a table",
    "a valid dictionary or object to extract fields from": "a table",
    "a valid dictionary": "a table",
    "array": "list",
}

_Found = tuple[tuple[tuple[str | int, ...], str], Problem]


def _problem(shape: Shape, details: ErrorDetails) -> _Found:
    path, at = shape.follow(details["loc"], unknown_last=details["type"] == "extra_forbidden")
    value, context, kind = details["input"], details.get("ctx", {}), details["type"]
    dotted = _dotted(path)
    shown = f"{dotted} = {_show(value)}" if dotted else ""
    if kind == "extra_forbidden":
        allowed = at.names()
        problem = Problem(shown, "unknown key", allowed, _elsewhere(shape, path) or nearest(path[-1], allowed))
    elif kind == "missing":
        problem = Problem(dotted, "is missing; it has no default, so write it")
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        allowed = at.kinds()
        tag = value.get("kind") if isinstance(value, Mapping) else None
        where = f"{dotted}.kind" if dotted else "kind"
        if kind == "union_tag_not_found":
            problem = Problem(where, "is missing; say which kind", allowed)
        else:
            problem = Problem(f"{where} = {_show(tag)}", "unknown kind", allowed, nearest(tag, allowed))
    elif kind in ("literal_error", "enum"):
        allowed = at.values() or tuple(re.findall(r"'([^']*)'", str(context.get("expected", ""))))
        problem = Problem(shown, "is not one of the allowed values", allowed, nearest(value, allowed))
    elif kind == "value_error":
        said = str(context.get("error", details["msg"]))
        # A message that already begins with its key is not given it twice.
        problem = Problem("" if dotted and said.startswith((f"{dotted}.", f"{dotted} ")) else dotted, said)
    else:
        message = re.sub("^(Input|String|List|Dictionary|Tuple|Set|Number) should ", "must ", details["msg"])
        if kind == "string_too_short" and context.get("min_length") == 1:
            message = "must not be empty"
        for theirs, ours in _WORDS.items():
            message = message.replace(theirs, ours)
        if kind.startswith("bool"):
            message += ", true or false"
        problem = Problem(shown, message)
    return (path, kind), problem


def _elsewhere(root: Shape, path: tuple[str | int, ...]) -> str | None:
    """The one key of this very name that the whole or a table of it has, as it is written; tables of several kinds are
    left out, as each kind has its own.
    """
    name = path[-1]
    tables = {
        table: inside.names()
        for table in root.names()
        if (inside := root.inside(table)) is not None and len(inside.kinds()) < 2
    }
    places = [
        *([str(name)] if name in root.names() else []),
        *(f"{table}.{name}" for table, names in tables.items() if name in names),
    ]
    return places[0] if len(places) == 1 else None


def _without_other_branches(tree: Any, found: list[_Found]) -> list[_Found]:
    """One problem a key, where a union (a number or a table) reports one for each of its branches."""
    kept: dict[tuple[str | int, ...], _Found] = {}
    rest: list[_Found] = []
    for (path, kind), problem in found:
        if not _TYPE_ERRORS.fullmatch(kind):
            rest.append(((path, kind), problem))
            continue
        value = _at(tree, path)
        # A table that was meant for the table branch fails the number branch too: that says nothing.
        deeper = any(
            other[: len(path)] == path and (other != path or not _TYPE_ERRORS.fullmatch(name))
            for (other, name), _ in found
        )
        if isinstance(value, Mapping) and deeper:
            continue
        if path in kept:
            before = kept[path][1]
            if problem.message not in before.message:
                allowed = tuple(dict.fromkeys([*before.allowed, *problem.allowed]))
                problem = Problem(
                    before.path,
                    f"{before.message}, or {problem.message}",
                    allowed,
                    before.suggestion or problem.suggestion,
                )
                kept[path] = ((path, kind), problem)
        else:
            kept[path] = ((path, kind), problem)
    return [*kept.values(), *rest]


def _at(tree: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        try:
            tree = tree[key]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def _dotted(path: tuple[str | int, ...]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _show(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
