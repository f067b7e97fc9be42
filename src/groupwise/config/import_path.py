"""Where a configuration names code: one type for every such key, so that all the code that a configuration would run
can be listed before any of it runs.
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
    """`package.module:name`, or the name of an entry point where the key serves those. A module may lie in the working
    directory.

    It is a text of a class of its own: what a validated configuration names as code can be told from every other text
    in it, wherever it stands, and nothing else is imported (`user_module` takes no plain text).

    Example:
        >>> path = ImportPath("package.module:Class.method")
        >>> path.module, path.name
        ('package.module', 'Class.method')
    """

    @property
    def module(self) -> str:
        """What is imported; the whole text where it names an entry point."""
        return self.partition(":")[0]

    @property
    def name(self) -> str:
        """What is looked up in the module; empty where it names an entry point."""
        return self.partition(":")[2]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        return core_schema.no_info_after_validator_function(_checked, core_schema.str_schema())


def _checked(text: str) -> ImportPath:
    module, colon, name = text.partition(":")
    if not (
        all(part.isidentifier() for part in (*module.split("."), *name.split(".")))
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
        key: dotted, as it is written.
        path: the code.
        holder: the table around it, with the arguments that the code is called with.
    """

    key: str
    path: ImportPath
    holder: BaseModel


def import_paths(config: BaseModel, key: str = "") -> Iterator[Named]:
    """Every place of a configuration that names code, through nested tables, unions, lists and tables whose entries the
    user names.

    Args:
        config: a validated configuration.
        key: its own, which those inside it begin with.

    Example:
        >>> from groupwise.config import Config
        >>> class Hooks(Config):
        ...     after: dict[str, list[ImportPath]]
        >>> [(each.key, each.path) for each in import_paths(Hooks(after={"step": ["a:b", "c:d"]}), "hooks")]
        [('hooks.after.step[0]', 'a:b'), ('hooks.after.step[1]', 'c:d')]
    """
    for field in type(config).model_fields:
        yield from _named(getattr(config, field), f"{key}.{field}".lstrip("."), config)


def _named(value: Any, key: str, holder: BaseModel) -> Iterator[Named]:
    if isinstance(value, ImportPath):
        yield Named(key, value, holder)
    elif isinstance(value, BaseModel):
        yield from import_paths(value, key)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _named(inner, f"{key}.{name}", holder)
    elif isinstance(value, list | tuple | set | frozenset):
        for place, inner in enumerate(value):
            yield from _named(inner, f"{key}[{place}]", holder)
