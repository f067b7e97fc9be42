"""Python objects in a configuration: a run refers to each by an import path, and holds the object while it works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any, final

from groupwise.config.errors import ConfigError
from groupwise.config.import_path import ImportPath

OBJECTS = "groupwise.objects"
"""The module part of the import path of a Python object. No file has this name: `user_module` takes the object from
those that the program holds.
"""

_present: ContextVar[Mapping[str, Any]] = ContextVar("present", default={})  # noqa: B039


@contextmanager
def holding(objects: Mapping[str, Any]) -> Iterator[None]:
    """Lets import paths find these objects within the block, beside those of an enclosing block.

    Args:
        objects: name -> object; a name is an identifier.

    Example:
        >>> with holding({"reward": len}):
        ...     held_object("reward") is len
        True
    """
    token = _present.set({**_present.get(), **objects})
    try:
        yield
    finally:
        _present.reset(token)


def object_path(name: str) -> ImportPath:
    """Returns the import path by which a configuration refers to an object.

    Args:
        name: the name of the object, an identifier.

    Example:
        >>> object_path("reward")
        'groupwise.objects:reward'
    """
    return ImportPath(f"{OBJECTS}:{name}")


def is_object(path: ImportPath) -> bool:
    """Returns whether an import path refers to an object that only the user's program can hold.

    A path to a member of an object does not count: the author of a configuration could choose which code runs.

    Example:
        >>> is_object(object_path("reward")), is_object(ImportPath("groupwise.objects:reward.__call__"))
        (True, False)
    """
    return path.module == OBJECTS and path.name.isidentifier() and not path.name.startswith("_")


def held_object(name: str, default: Any = None) -> Any:
    """Returns the object of this name, or the default where the program holds none.

    Args:
        name: the name of the object.
        default: the value for an absent object.
    """
    return _present.get().get(name, default)


@final
class Objects(ModuleType):
    """The held objects as the members of a module."""

    def __init__(self) -> None:
        super().__init__(OBJECTS)

    def __getattr__(self, name: str) -> Any:
        objects = _present.get()
        if name in objects:
            return objects[name]
        raise ConfigError(
            f"{OBJECTS}:{name} is a Python object that a program handed to groupwise.train, and no file describes it;"
            " hand it over again: groupwise.resume(FOLDER, ...) goes on with the run, and"
            " groupwise.load_run(FOLDER).domain(...) opens its trained model"
        )
