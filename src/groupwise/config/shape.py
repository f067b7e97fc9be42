"""What may stand at a place of a configuration, read from type annotations.

A validation error names a place by field names, list positions and labels of the union branches it tried. Following it
through the annotations gives the dotted path as the user wrote it, and the names that would have been allowed there.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, final, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from groupwise.config.open_kinds import OpenKinds


def _branches(annotation: Any) -> tuple[Any, ...]:
    """The plain types of an annotation: unions opened, aliases and metadata removed."""
    if hasattr(annotation, "__value__"):
        return _branches(annotation.__value__)
    origin = get_origin(annotation)
    if origin is Annotated:
        opened = tuple(mark for mark in annotation.__metadata__ if isinstance(mark, OpenKinds))
        return opened or _branches(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return tuple(branch for part in get_args(annotation) for branch in _branches(part))
    return (annotation,)


def _field_branches(field: FieldInfo) -> tuple[Any, ...]:
    """The plain types of a field, whose metadata stand beside its annotation."""
    return tuple(mark for mark in field.metadata if isinstance(mark, OpenKinds)) or _branches(field.annotation)


def _is_model(branch: Any) -> bool:
    return isinstance(branch, type) and issubclass(branch, BaseModel)


def _kinds(model: type[BaseModel]) -> tuple[str, ...]:
    field = model.model_fields.get("kind")
    if field is None:
        return ()
    return tuple(
        str(value)
        for branch in _branches(field.annotation)
        if get_origin(branch) is Literal
        for value in get_args(branch)
    )


@final
@dataclass(frozen=True)
class Shape:
    """The types that may stand at one place.

    Args:
        branches: plain types, the union of which is allowed.

    Example:
        >>> from groupwise.config import Config
        >>> class Clip(Config):
        ...     low: float = 0.2
        >>> Shape.of(Clip | None).names()
        ('low',)
    """

    branches: tuple[Any, ...]

    @classmethod
    def of(cls, annotation: Any) -> Shape:
        """The shape that an annotation allows.

        Args:
            annotation: a type, as it stands behind a field's colon.
        """
        return cls(_branches(annotation))

    def names(self) -> tuple[str, ...]:
        """Keys that a table here may have, when they are fixed."""
        return tuple(
            dict.fromkeys(field.alias or name for model in self._models() for name, field in model.model_fields.items())
        )

    def kinds(self) -> tuple[str, ...]:
        """Kinds that a table here may have."""
        opened = (kind for branch in self.branches if isinstance(branch, OpenKinds) for kind in branch.names())
        return tuple(dict.fromkeys([*(kind for model in self._models() for kind in _kinds(model)), *opened]))

    def values(self) -> tuple[str, ...]:
        """Values that may stand here, when they are fixed."""
        found: list[str] = []
        for branch in self.branches:
            if get_origin(branch) is Literal:
                found += [str(value) for value in get_args(branch)]
            elif isinstance(branch, type) and issubclass(branch, enum.Enum):
                found += [str(member.value) for member in branch]
        return tuple(found)

    def follow(self, location: Iterable[str | int], unknown_last: bool = False) -> tuple[tuple[str | int, ...], Shape]:
        """The path a user writes, and the shape at its end.

        Args:
            location: pydantic's location of an error, with labels of union branches in between.
            unknown_last: the last part is a key that does not exist; the shape returned is that of the table around it.
        """
        parts, path, shape, labelled = list(location), [], self, False
        for position, part in enumerate(parts):
            if unknown_last and position == len(parts) - 1:
                path.append(part)
                break
            # Where several kinds of table may stand, the kind's own name comes first, and a key of that table may be
            # called the same.
            label = not labelled and shape._is_of_many_kinds() and part in shape.kinds()
            inner = None if label else shape.inside(part)
            if inner is not None:
                path.append(part)
                shape, labelled = inner, False
            else:
                shape, labelled = shape.narrow(part), labelled or label
        return tuple(path), shape

    def inside(self, part: str | int) -> Shape | None:
        """The shape of a key or position, or None where there is none such.

        Args:
            part: a key, or a position in a list.
        """
        found = [inner for branch in self.branches for inner in self._inside_branch(branch, part)]
        return Shape(tuple(found)) if found else None

    def narrow(self, part: str | int) -> Shape:
        """The shape with only the branches of this kind, or of this class name; unchanged where none is.

        Args:
            part: a kind, or the name of a class.
        """
        models = [model for model in self._models() if part in _kinds(model) or part == model.__name__]
        opened = [
            branch.config(part)
            for branch in self.branches
            if isinstance(branch, OpenKinds) and isinstance(part, str) and branch.can_read(part)
        ]
        return Shape((*models, *opened)) if models or opened else self

    def default(self, key: str) -> Any:
        """What a table here has for `key` when it is not written, or None.

        Args:
            key: a field's name.
        """
        for model in self._models():
            field = model.model_fields.get(key)
            if field is not None and not field.is_required():
                return field.get_default(call_default_factory=True, validated_data={})
        return None

    @property
    def named(self) -> bool:
        """Whether a table here has entries whose names the user gives, and no fixed keys."""
        return not self._models() and any(
            isinstance(origin := get_origin(branch), type) and issubclass(origin, Mapping) for branch in self.branches
        )

    def _is_of_many_kinds(self) -> bool:
        return len(self._models()) > 1 or any(isinstance(branch, OpenKinds) for branch in self.branches)

    def _models(self) -> list[type[BaseModel]]:
        return [branch for branch in self.branches if _is_model(branch)]

    def _inside_branch(self, branch: Any, part: str | int) -> tuple[Any, ...]:
        if _is_model(branch):
            fields = branch.model_fields.items()
            return tuple(
                inner for name, field in fields if part in (name, field.alias) for inner in _field_branches(field)
            )
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
        """Whether a text is the name pydantic gives to a branch of a union rather than a key of a table."""
        return part == "[key]" or (
            len(self.branches) > 1
            and ("[" in part or any(getattr(branch, "__name__", None) == part for branch in self.branches))
        )
