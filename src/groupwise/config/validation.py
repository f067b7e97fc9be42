"""Strict validation of a plain table into a configuration object, with all problems reported at once.

The table goes through JSON, so that one set of rules reads TOML files, overrides and a saved `config.json`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from groupwise.config.errors import ConfigError, Problem, nearest
from groupwise.config.open_kinds import flat
from groupwise.config.shape import Path, Shape, merge
from groupwise.config.tables import check_plain

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
    tree = merge({}, tree, model)
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
    raise ConfigError(_one_a_key(tree, problems), source=source) from None


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

_LocatedProblem = tuple[tuple[Path, str], Problem]


def _problems(shape: Shape, details: ErrorDetails, tree: Any) -> list[_LocatedProblem]:
    """Returns the problems of an error. The problems of a nested validation are placed under the key at which it was
    raised.
    """
    error = details.get("ctx", {}).get("error")
    if not isinstance(error, ConfigError) or error.source or not all(problem.path for problem in error.problems):
        return [_problem(shape, details, tree)]
    path, _ = shape.follow(details["loc"])
    return [((path, details["type"]), replace(problem, path=_below(path, problem.path))) for problem in error.problems]


def _below(path: Path, key: str) -> str:
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
            meant = _same_key_elsewhere(shape, str(path[-1]), tree) or nearest(path[-1], allowed)
            problem = Problem(assignment, "unknown key", allowed, meant, value)
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


def _of_user_code(root: Shape, location: Path, path: Path) -> str:
    """Returns advice for a user-code key (`path`, `settings`) in a table of a shipped kind."""
    above, table_shape = root.follow(location[:-2])
    # In a union of kinds, pydantic puts the kind's name between table and key.
    if path[-1] not in _OF_USER_CODE or above != path[:-1] or _CALLABLE not in table_shape.kinds():
        return ""
    return f'it belongs to code of your own; write {_dotted(above)}.kind = "{_CALLABLE}" beside it'


def _same_key_elsewhere(root: Shape, name: str, tree: Any) -> str | None:
    """Returns the key of the same name elsewhere, where exactly one exists: in the whole configuration or in one of its
    tables. A table of several kinds has the keys of the kind that is written.
    """
    inside = {table: root.inside(table) or Shape(()) for table in root.names()}
    places = [name] if name in inside else []
    for table, shape in inside.items():
        kinds, written = shape.kinds(), _at(tree, (table, "kind"))
        if len(kinds) < 2 or written in kinds:
            places += [f"{table}.{name}"] if name in shape.narrow(str(written)).names() else []
    return places[0] if len(places) == 1 else None


def _one_a_key(tree: Any, problems: list[_LocatedProblem]) -> list[Problem]:
    """Reduces the problems to one a key. A union (of a number and a table) reports one problem for each of its
    branches.
    """
    # Keys that another kind would require are not reported: the kind itself is the mistake.
    of_user_code = {path[:-1] for (path, kind), _ in problems if kind == _USER_CODE}
    of_types: dict[Path, Problem] = {}
    others: list[Problem] = []
    for (path, kind), problem in problems:
        if kind == "missing" and path[:-1] in of_user_code:
            continue
        if not _TYPE_ERRORS.fullmatch(kind):
            others.append(problem)
            continue
        # In a union of a number and a table, a table also fails the number branch; that error is noise.
        if isinstance(_at(tree, path), Mapping) and any(
            deeper[: len(path)] == path and (deeper != path or not _TYPE_ERRORS.fullmatch(name))
            for (deeper, name), _ in problems
        ):
            continue
        before = of_types.setdefault(path, problem)
        if problem.message not in before.message:
            of_types[path] = Problem(
                before.path,
                f"{before.message}, or {problem.message}",
                tuple(dict.fromkeys([*before.allowed, *problem.allowed])),
                before.suggestion or problem.suggestion,
            )
    return [*of_types.values(), *others]


def _at(tree: Any, path: Path) -> Any:
    for key in path:
        try:
            tree = tree[key]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def _dotted(path: Path) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _show(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
