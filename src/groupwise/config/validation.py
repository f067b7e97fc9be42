"""Strict validation of a plain table into a configuration object, with all problems reported at once.

The table goes through JSON, so that one set of rules reads TOML files, overrides and a saved `config.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from groupwise.config.errors import ConfigError, Problem, nearest
from groupwise.config.open_kinds import flat
from groupwise.config.plain import check_plain, fill_kinds
from groupwise.config.shape import Shape

M = TypeVar("M", bound=BaseModel)


def validate(model: type[M], tree: Mapping[str, Any], source: str = "") -> M:
    """Validates a plain table into a `model`, or raises one error that lists every problem.

    Args:
        tree: nested tables of JSON-able values.
        source: the name of the table in errors, usually a file name.

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
        problems = [
            problem
            for details in error.errors(include_url=False)
            for inner in flat(details)
            for problem in _problems(shape, inner, tree)
        ]
    raise ConfigError([problem for _, problem in _without_other_branches(tree, problems)], source=source) from None


_TYPE_ERRORS = re.compile(
    r".*_(type|parsing|from_float)$|is_instance_of|literal_error|none_required|model_attributes_type"
)

# Words of pydantic's messages -> the words of TOML.
_WORDS = {
    "an object": "a table",
    "a valid dictionary or object to extract fields from": "a table",
    "a valid dictionary": "a table",
    "array": "list",
}

_CALLABLE = "callable"
_OF_USER_CODE = ("path", "settings", "arguments")
"""The kind of a user's class or function, and its keys."""
_USER_CODE = "extra_of_user_code"
"""The type of an error about a user-code key in a table of another kind."""

_LocatedProblem = tuple[tuple[tuple[str | int, ...], str], Problem]


def _problems(shape: Shape, details: ErrorDetails, tree: Any) -> list[_LocatedProblem]:
    """Returns the problems of an error. The problems of a nested validation are placed under the key at which it was
    raised.
    """
    error = details.get("ctx", {}).get("error")
    if not isinstance(error, ConfigError) or error.source or not all(problem.path for problem in error.problems):
        return [_problem(shape, details, tree)]
    path, _ = shape.follow(details["loc"])
    return [((path, details["type"]), replace(problem, path=_below(path, problem.path))) for problem in error.problems]


def _below(path: tuple[str | int, ...], key: str) -> str:
    """Writes a key under the table at which its error was raised, or instead of the field that raised it.

    Example:
        >>> _below(("trust",), "path = 'a:b'"), _below(("trust", "path"), "path = 'a:b'"), _below((), "seed = 3")
        ("trust.path = 'a:b'", "trust.path = 'a:b'", 'seed = 3')
    """
    name = re.split(r"[ .\[]", key, maxsplit=1)[0]
    table = _dotted(path[:-1] if path and path[-1] == name else path)
    return key if not table or key.startswith((f"{table}.", f"{table} ")) else f"{table}.{key}"


def _problem(shape: Shape, details: ErrorDetails, tree: Any) -> _LocatedProblem:
    path, place_shape = shape.follow(details["loc"], unknown_last=details["type"] == "extra_forbidden")
    value, context, kind = details["input"], details.get("ctx", {}), details["type"]
    dotted = _dotted(path)
    assignment = f"{dotted} = {_show(value)}" if dotted else ""
    if kind == "extra_forbidden":
        place, table, allowed = _dotted(path[:-1]), _at(tree, path[:-1]), place_shape.names()
        if answer := _of_user_code(shape, details["loc"], path):
            kind, problem = _USER_CODE, Problem(assignment, f"unknown key; {answer}")
        elif isinstance(table, Mapping) and (answer := place_shape.instead_of_unknown(str(path[-1]), place, table)):
            problem = Problem(assignment, f"unknown key; {answer}")
        else:
            meant = _same_key_elsewhere(shape, path, tree) or nearest(path[-1], allowed)
            problem = Problem(assignment, "unknown key", allowed, meant)
    elif kind == "missing":
        problem = Problem(dotted, "is missing; it has no default, so write it")
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        allowed = place_shape.kinds()
        tag = value.get("kind") if isinstance(value, Mapping) else None
        kind_key = f"{dotted}.kind" if dotted else "kind"
        if kind == "union_tag_not_found":
            of_user = isinstance(value, Mapping) and "path" in value and _CALLABLE in allowed
            meant = f' ({kind_key} = "{_CALLABLE}" for a path to your own)' if of_user else ""
            problem = Problem(kind_key, f"is missing; say which kind{meant}", allowed)
        else:
            problem = Problem(f"{kind_key} = {_show(tag)}", "unknown kind", allowed, nearest(tag, allowed))
    elif kind in ("literal_error", "enum"):
        allowed = place_shape.values() or tuple(re.findall(r"'([^']*)'", str(context.get("expected", ""))))
        problem = Problem(assignment, "is not one of the allowed values", allowed, nearest(value, allowed))
    elif kind == "value_error":
        message = str(context.get("error", details["msg"]))
        # Some messages begin with their key already.
        problem = Problem("" if dotted and message.startswith((f"{dotted}.", f"{dotted} ")) else dotted, message)
    else:
        message = re.sub("^(Input|String|List|Dictionary|Tuple|Set|Number) should ", "must ", details["msg"])
        if kind == "string_too_short" and context.get("min_length") == 1:
            message = "must not be empty"
        for pydantic_words, toml_words in _WORDS.items():
            message = message.replace(pydantic_words, toml_words)
        if kind.startswith("bool"):
            message += ", true or false"
        problem = Problem(assignment, message)
    return (path, kind), problem


def _of_user_code(root: Shape, location: tuple[str | int, ...], path: tuple[str | int, ...]) -> str:
    """Returns advice for a user-code key (`path`, `settings`) in a table of a shipped kind."""
    above, table_shape = root.follow(location[:-2])
    # In a union of kinds, pydantic puts the kind's name between table and key.
    if path[-1] not in _OF_USER_CODE or above != path[:-1] or _CALLABLE not in table_shape.kinds():
        return ""
    return f'it belongs to code of your own; write {_dotted(above)}.kind = "{_CALLABLE}" beside it'


def _same_key_elsewhere(root: Shape, path: tuple[str | int, ...], tree: Any) -> str | None:
    """Returns the key of the same name elsewhere, where exactly one exists: in the whole configuration or in one of its
    tables. Tables of several kinds are searched last, and only under the kind that is written.
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
    if not places and len(path) == 1:
        places = [
            f"{table}.{name}"
            for table in root.names()
            if (inside := root.inside(table)) is not None
            and len(inside.kinds()) > 1
            and (kind := _at(tree, (table, "kind"))) in inside.kinds()
            and name in inside.narrow(str(kind)).names()
        ]
    return places[0] if len(places) == 1 else None


def _without_other_branches(tree: Any, problems: list[_LocatedProblem]) -> list[_LocatedProblem]:
    """Reduces the problems to one a key. A union (of a number and a table) reports one problem for each of its
    branches.
    """
    # Keys that another kind would require are not reported: the kind itself is the mistake.
    of_user_code = {path[:-1] for (path, kind), _ in problems if kind == _USER_CODE}
    problems = [
        ((path, kind), problem)
        for (path, kind), problem in problems
        if kind != "missing" or path[:-1] not in of_user_code
    ]
    type_problems: dict[tuple[str | int, ...], _LocatedProblem] = {}
    further_problems: list[_LocatedProblem] = []
    for (path, kind), problem in problems:
        if not _TYPE_ERRORS.fullmatch(kind):
            further_problems.append(((path, kind), problem))
            continue
        value = _at(tree, path)
        # In a union of a number and a table, a table also fails the number branch; that error is noise.
        has_deeper_problem = any(
            deeper_path[: len(path)] == path and (deeper_path != path or not _TYPE_ERRORS.fullmatch(name))
            for (deeper_path, name), _ in problems
        )
        if isinstance(value, Mapping) and has_deeper_problem:
            continue
        if path in type_problems:
            previous = type_problems[path][1]
            if problem.message not in previous.message:
                allowed = tuple(dict.fromkeys([*previous.allowed, *problem.allowed]))
                problem = Problem(
                    previous.path,
                    f"{previous.message}, or {problem.message}",
                    allowed,
                    previous.suggestion or problem.suggestion,
                )
                type_problems[path] = ((path, kind), problem)
        else:
            type_problems[path] = ((path, kind), problem)
    return [*type_problems.values(), *further_problems]


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
