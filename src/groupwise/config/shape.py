"""The types that are allowed at a place in a configuration, read from type annotations.

A validation error locates a value by field names, list positions and labels of the tried branches of a union. The
annotations along this location give the dotted path that the user wrote, and the names that the place allows.
"""

import ast
import copy
import enum
import inspect
import re
import sys
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Self, Union, final, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from groupwise.config.base import Config
from groupwise.config.open_kinds import OpenKinds

Path = tuple[str | int, ...]
"""Keys and positions, from the outermost on."""


def _branches(annotation: Any) -> tuple[Any, ...]:
    """Returns the plain types of an annotation: members of unions, without aliases and metadata."""
    if hasattr(annotation, "__value__"):
        return _branches(annotation.__value__)
    origin = get_origin(annotation)
    if origin is Annotated:
        opened = tuple(mark for mark in annotation.__metadata__ if isinstance(mark, OpenKinds))
        return opened or _branches(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return tuple(branch for member in get_args(annotation) for branch in _branches(member))
    return (annotation,)


def _field_branches(field: FieldInfo) -> tuple[Any, ...]:
    """Returns the plain types of a field. pydantic keeps a field's metadata apart from its annotation."""
    return tuple(mark for mark in field.metadata if isinstance(mark, OpenKinds)) or _branches(field.annotation)


def _is_model(branch: Any) -> bool:
    return isinstance(branch, type) and issubclass(branch, BaseModel)


@cache
def _fields(model: type[BaseModel]) -> dict[str, tuple[Any, ...]]:
    """Returns key -> plain types for the fields of a class, under their names and their aliases."""
    by_alias = {field.alias: _field_branches(field) for field in model.model_fields.values() if field.alias}
    return by_alias | {name: _field_branches(field) for name, field in model.model_fields.items()}


@cache
def _kinds(model: type[BaseModel]) -> tuple[str, ...]:
    field = model.model_fields.get("kind")
    return () if field is None else Shape.of(field.annotation).values()


@final
@dataclass(frozen=True)
class Shape:
    """The types that are allowed at one place.

    Args:
        branches: plain types, whose union is allowed.

    Example:
        >>> from groupwise.config import Config
        >>> class Clip(Config):
        ...     low: float = 0.2
        >>> Shape.of(Clip | None).names()
        ('low',)
    """

    branches: tuple[Any, ...]

    @classmethod
    def of(cls, annotation: Any) -> Self:
        """Returns the shape that an annotation allows.

        Args:
            annotation: the type annotation of a field.
        """
        return cls(_branches(annotation))

    def names(self) -> tuple[str, ...]:
        """Returns the keys that a table at this place may have, when they are fixed."""
        return tuple(
            dict.fromkeys(field.alias or name for model in self._models() for name, field in model.model_fields.items())
        )

    def kinds(self) -> tuple[str, ...]:
        """Returns the kinds that a table at this place may have."""
        opened = (kind for branch in self.branches if isinstance(branch, OpenKinds) for kind in branch.names())
        return tuple(dict.fromkeys([*(kind for model in self._models() for kind in _kinds(model)), *opened]))

    def is_kind(self, word: str) -> bool:
        """Returns whether a word at this place is short for a table of that kind. An unknown word counts where only
        tables of several kinds are allowed, and is reported later; where text is allowed, the word is text.
        """
        others = [branch for branch in self.branches if not _is_model(branch) and not isinstance(branch, OpenKinds)]
        if word in self.values() or any(isinstance(branch, type) and issubclass(branch, str) for branch in others):
            return False
        return word in self.kinds() or (self._is_of_many_kinds() and set(others) <= {types.NoneType})

    def values(self) -> tuple[str, ...]:
        """Returns the values that are allowed at this place, when they are fixed."""
        literals = [value for branch in self.branches if get_origin(branch) is Literal for value in get_args(branch)]
        enums = [branch for branch in self.branches if isinstance(branch, type) and issubclass(branch, enum.Enum)]
        return tuple(map(str, [*literals, *(member.value for members in enums for member in members)]))

    def instead_of_unknown(self, key: str, place: str, table: Mapping[str, Any]) -> str:
        """Returns what the classes of a table at this place say to write in place of a key that they do not have.

        Args:
            key: the last part of the key.
            place: the dotted path of the table.
            table: as it is written.
        """
        answers = (model.instead_of_unknown(key, place, table) for model in self._models() if issubclass(model, Config))
        return next(filter(None, answers), "")

    def follow(
        self, location: Iterable[str | int], unknown_last: bool = False
    ) -> tuple[tuple[str | int, ...], "Shape"]:
        """Returns the path as the user writes it, and the shape at its end.

        Args:
            location: pydantic's location of an error, with labels of union branches in between.
            unknown_last: whether the last part is a key that does not exist; then the shape is that of its table.
        """
        segments, path, shape, labelled = list(location), [], self, False
        for position, segment in enumerate(segments):
            if unknown_last and position == len(segments) - 1:
                path.append(segment)
                break
            # Where several kinds of table are allowed, pydantic's location has the kind's name before the key. A key of
            # that table may have the same name.
            label = not labelled and shape._is_of_many_kinds() and segment in shape.kinds()
            inner = None if label else shape.inside(segment)
            if inner is not None:
                path.append(segment)
                shape, labelled = inner, False
            else:
                shape, labelled = shape.narrow(segment), labelled or label
        return tuple(path), shape

    def inside(self, part: str | int) -> "Shape | None":
        """Returns the shape of a key or position, or None where it does not exist.

        Args:
            part: a key, or a position in a list.
        """
        branches = [inner for branch in self.branches for inner in self._inside_branch(branch, part)]
        return Shape(tuple(branches)) if branches else None

    def narrow(self, part: str | int) -> "Shape":
        """Returns the shape with only the branches of this kind, or of this class name; unchanged where no branch has
        it.

        Args:
            part: a kind, or the name of a class.
        """
        models = [model for model in self._models() if part in _kinds(model) or part == model.__name__]
        opened = (branch for branch in self.branches if isinstance(branch, OpenKinds) and isinstance(part, str))
        models += [branch.config(str(part)) for branch in opened if branch.can_read(str(part))]
        return Shape(tuple(models)) if models else self

    def default(self, key: str) -> Any:
        """Returns the default of `key` in a table at this place, or None."""
        fields = (model.model_fields.get(key) for model in self._models())
        field = next((field for field in fields if field is not None and not field.is_required()), None)
        return None if field is None else field.get_default(call_default_factory=True, validated_data={})

    def _is_of_many_kinds(self) -> bool:
        return len(self._models()) > 1 or any(isinstance(branch, OpenKinds) for branch in self.branches)

    def _models(self) -> list[type[BaseModel]]:
        return [branch for branch in self.branches if _is_model(branch)]

    def _inside_branch(self, branch: Any, part: str | int) -> tuple[Any, ...]:
        if _is_model(branch):
            return _fields(branch).get(str(part), ())
        origin, arguments = get_origin(branch), list(get_args(branch))
        if not isinstance(origin, type) or not arguments:
            return ()
        if issubclass(origin, Mapping):
            return _branches(arguments[-1]) if isinstance(part, str) and not self._is_label(part) else ()
        if not isinstance(part, int):
            return ()
        fixed = origin is tuple and Ellipsis not in arguments
        return _branches(arguments[min(part, len(arguments) - 1)] if fixed else arguments[0])

    def _is_label(self, part: str) -> bool:
        """Returns whether a text is pydantic's name of a branch of a union, rather than a key of a table."""
        return part == "[key]" or (
            len(self.branches) > 1
            and ("[" in part or any(getattr(branch, "__name__", None) == part for branch in self.branches))
        )


# Layers of tables: the later one wins, key by key, and a changed `kind` starts its table anew.


def merge(
    below: Mapping[str, Any],
    above: Mapping[str, Any],
    model: type[BaseModel] | types.UnionType | None = None,
    defaults: BaseModel | Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Lays the table `above` on the table `below`; changes neither.

    Tables merge key by key, everything else is replaced. Where `above` names another `kind` than `below`, that table
    starts from the defaults of the new kind: the keys of the old kind are dropped, and keys written with the new kind
    stay. `None` over a table removes it, so that an optional table or a named entry can be taken back; `None` over a
    value is that value.

    With a `model`, every table of `above` states its kind afterwards: a table without `kind` is of the kind below or
    else of its key's default, and a word where a table is meant, as in `optimiser = "adamw"`, is the kind of the table.

    Args:
        above: the upper table, whose values win.
        model: the class of the table, or a union of classes whose keys it may have.
        defaults: a whole configuration that holds where `below` says nothing; it replaces the model's defaults.

    Returns:
        a new table.

    Example:
        >>> merge({"trust": {"kind": "clip", "low": 0.2}}, {"trust": {"low": 0.1}})
        {'trust': {'kind': 'clip', 'low': 0.1}}
        >>> merge({"trust": {"kind": "clip", "low": 0.2}}, {"trust": {"kind": "gaussian", "sigma": 0.3}})
        {'trust': {'kind': 'gaussian', 'sigma': 0.3}}
        >>> from groupwise.objective import Objective
        >>> merge({}, {"trust": "clip"}, Objective)
        {'trust': {'kind': 'clip'}}
    """
    merged: dict[str, Any] = _laid(
        Shape(()) if model is None else Shape.of(model), copy.deepcopy(below), above, defaults
    )
    return merged


def _laid(shape: Shape, below: Any, above: Any, default: Any) -> Any:
    if isinstance(above, list):
        return [_laid(shape.inside(place) or Shape(()), None, entry, None) for place, entry in enumerate(above)]
    if isinstance(above, str) and shape.is_kind(above):
        above = {"kind": above}
    if not isinstance(above, Mapping):
        return above
    tree = dict(below) if isinstance(below, Mapping) else {}
    kind_below = tree.get("kind", _entry(default, "kind"))
    kind = above.get("kind", kind_below)
    if kind != kind_below:
        # The keys and defaults of another kind do not hold.
        tree, default = {}, None
    if kind is not None:
        tree = {"kind": kind, **tree}
    shape = shape.narrow(kind) if isinstance(kind, str) else shape
    for key, entry in above.items():
        if entry is None and isinstance(tree.get(key), Mapping):
            del tree[key]
            continue
        stated = _entry(default, key)
        inner = shape.inside(key) or Shape(())
        tree[key] = _laid(inner, tree.get(key), entry, shape.default(key) if stated is None else stated)
    return tree


def _entry(table: Any, key: str) -> Any:
    if isinstance(table, BaseModel):
        # Only fields count, since people write only fields. An entry of a named chain has its kind in its class and
        # none in its table.
        return getattr(table, key) if key in type(table).model_fields else None
    return table.get(key) if isinstance(table, Mapping) else None


# The JSON schema of a configuration, for editors that complete and check TOML and JSON.

_ARGUMENT = re.compile(r"^ {4}(\w+)(?: \([^)]*\))?: (.*(?:\n {5,}\S.*)*)", re.MULTILINE)


def json_schema(model: type[BaseModel], title: str | None = None) -> dict[str, Any]:
    """Returns the JSON schema of `model` for editors.

    The first line of each class's docstring becomes the description of its table. The docstring below an attribute, or
    the text of its argument, becomes the description of its key.

    Args:
        title: the title of the whole schema; unset takes the class's name.

    Returns:
        a JSON schema, draft 2020-12.

    Example:
        >>> from groupwise.config import Config
        >>> class Clip(Config):
        ...     '''A clipped ratio.
        ...
        ...     Args:
        ...         low: how far below one.
        ...     '''
        ...
        ...     low: float = 0.2
        >>> json_schema(Clip)["properties"]["low"]["description"]
        'how far below one.'
    """
    schema = model.model_json_schema(schema_generator=_WithAttributeDocs)
    schema["title"] = title or model.__name__
    for table in [schema, *schema.get("$defs", {}).values()]:
        _describe(table)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def attribute_docs(model: type[BaseModel]) -> dict[str, str]:
    """Reads the docstrings below the attributes of a class and its bases from their source.

    pydantic would read them when a class is made, which takes longer than all else at the start of the command.

    Returns:
        attribute -> docstring; nothing of a class whose source cannot be read.

    Example:
        >>> from groupwise.objective import Objective
        >>> attribute_docs(Objective)["name"]
        'The name of the preset, with `+edited` where a key was changed.'
    """
    docs: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if cls is not BaseModel and issubclass(cls, BaseModel):
            docs |= _docs_of_module(cls.__module__).get(cls.__name__, {})
    return docs


@cache
def _docs_of_module(module: str) -> dict[str, dict[str, str]]:
    """Returns class -> attribute -> docstring of a module's source, which is parsed once."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, KeyError):
        return {}
    docs: dict[str, dict[str, str]] = {}
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        docs[cls.name] = {
            target.id: inspect.cleandoc(text)
            for statement, below in zip(cls.body, cls.body[1:], strict=False)
            if isinstance(target := getattr(statement, "target", None), ast.Name)
            and isinstance(text := getattr(getattr(below, "value", None), "value", None), str)
            and isinstance(below, ast.Expr)
        }
    return docs


class _WithAttributeDocs(GenerateJsonSchema):
    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        table = super().model_schema(schema)
        for name, text in attribute_docs(schema["cls"]).items():
            if name in table.get("properties", {}):
                table["properties"][name].setdefault("description", text)
        return table


def _describe(table: dict[str, Any]) -> None:
    text = inspect.cleandoc(table.get("description", ""))
    if not text:
        return
    table["description"] = text.partition("\n\n")[0].replace("\n", " ")
    arguments = re.search(r"^Args:\n((?: {4,}.*\n?|\n)*)", text, re.MULTILINE)
    if arguments is None:
        return
    for name, description in _ARGUMENT.findall(arguments.group(1)):
        if name in table.get("properties", {}):
            table["properties"][name].setdefault("description", " ".join(description.split()))
