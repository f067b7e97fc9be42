"""Import paths in a configuration: one type for every key that names code, so that all code of a configuration can be
listed before any of it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, final

from pydantic import AfterValidator, BaseModel
from pydantic_core import CoreSchema, core_schema

_ENTRY_POINT = re.compile(r"[\w.-]{1,200}")
_WRITE = "{!r} is no import path; write package.module:name, for a file mine.py in the working directory mine:name"


@final
class ImportPath(str):
    """A text `package.module:name`, or the name of an entry point where the key allows those. A module may lie in the
    working directory.

    The separate class distinguishes the code that a validated configuration names from every other text in it. No other
    text is imported: `user_module` refuses plain text.

    Example:
        >>> path = ImportPath("package.module:Class.method")
        >>> path.module, path.name
        ('package.module', 'Class.method')
    """

    @property
    def module(self) -> str:
        """The module that is imported; the whole text where it names an entry point."""
        return self.partition(":")[0]

    @property
    def name(self) -> str:
        """The name that is looked up in the module; empty where the text names an entry point."""
        return self.partition(":")[2]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        return core_schema.no_info_after_validator_function(_checked, core_schema.str_schema())


def _checked(text: str) -> ImportPath:
    module, colon, name = text.partition(":")
    if not (
        all(identifier.isidentifier() for identifier in (*module.split("."), *name.split(".")))
        if colon
        else _ENTRY_POINT.fullmatch(text)
    ):
        raise ValueError(_WRITE.format(text[:200]))
    return ImportPath(text)


def _in_module(path: ImportPath) -> ImportPath:
    if not path.name:
        raise ValueError(_WRITE.format(path))
    return path


InModule = Annotated[ImportPath, AfterValidator(_in_module)]
"""An import path at a key that serves no entry points."""


@final
@dataclass(frozen=True)
class Named:
    """One place of a configuration that names code.

    Args:
        key: the dotted key, as people write it.
        path: the import path of the code.
        holder: the table around the key, with the arguments of the code.
    """

    key: str
    path: ImportPath
    holder: BaseModel


def import_paths(config: BaseModel, key: str = "") -> Iterator[Named]:
    """Yields every place of a configuration that names code, through nested tables, unions, lists, and tables whose
    keys the user names.

    Args:
        key: the key of the configuration, with which the keys inside it begin.

    Example:
        >>> from groupwise.config import Config
        >>> class Hooks(Config):
        ...     after: dict[str, list[ImportPath]]
        >>> [(place.key, place.path) for place in import_paths(Hooks(after={"step": ["a:b", "c:d"]}), "hooks")]
        [('hooks.after.step[0]', 'a:b'), ('hooks.after.step[1]', 'c:d')]
    """
    for field in type(config).model_fields:
        yield from _paths_inside(getattr(config, field), f"{key}.{field}".lstrip("."), config)


def _paths_inside(value: Any, key: str, holder: BaseModel) -> Iterator[Named]:
    if isinstance(value, ImportPath):
        yield Named(key, value, holder)
    elif isinstance(value, BaseModel):
        yield from import_paths(value, key)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _paths_inside(inner, f"{key}.{name}", holder)
    elif isinstance(value, list | tuple | set | frozenset):
        for place, inner in enumerate(value):
            yield from _paths_inside(inner, f"{key}[{place}]", holder)
