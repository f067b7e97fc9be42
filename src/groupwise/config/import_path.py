"""Import paths in a configuration: one type for every key that names code, so that all code of a configuration can be
listed before any of it runs.
"""

import importlib
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, final

from pydantic import AfterValidator, BaseModel
from pydantic_core import CoreSchema, core_schema

from groupwise.config.errors import ConfigError
from groupwise.plugins import is_shipped_file

_ENTRY_POINT = re.compile(r"[\w.-]{1,200}")
_WRITE = "{!r} is no import path; write package.module:name, for a file mine.py in the working directory mine:name"


@final
class ImportPath(str):
    """A text `package.module:name`, or the name of an entry point where the key allows those. A module may be in the
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


# Python objects in a configuration: a run refers to each object by an import path, and holds the object while it runs.

OBJECTS = "groupwise.objects"
"""The module part of the import path of a Python object. No file has this name: `user_module` takes the object from
those that the program holds.
"""

_present: ContextVar[Mapping[str, Any]] = ContextVar("present", default={})  # noqa: B039


@contextmanager
def holding(objects: Mapping[str, Any]) -> Iterator[None]:
    """Lets import paths find these objects within the block, in addition to those of an enclosing block.

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


# Modules of a user, named in a configuration: installed, or lying in the working directory. A configuration runs code
# only through this module.

_allowed: ContextVar[Collection[str] | None] = ContextVar("allowed", default=None)


@contextmanager
def restrict_code(paths: Collection[str] = ()) -> Iterator[None]:
    """Restricts the code that a configuration may run within the block: a stranger's folder can be read without running
    its code.

    Args:
        paths: import paths of the allowed code; none by default.

    Example:
        >>> with restrict_code():
        ...     user_module(ImportPath("math:sqrt"))
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: math:sqrt is code that was not asked for, and is not run
    """
    token = _allowed.set(paths)
    try:
        yield
    finally:
        _allowed.reset(token)


def may_run(path: ImportPath) -> bool:
    """Returns whether this code may be imported inside the present block of `restrict_code`.

    Example:
        >>> may_run(ImportPath("math:sqrt"))
        True
    """
    allowed = _allowed.get()
    return allowed is None or path in allowed


def raised_at(error: BaseException) -> str:
    """Returns where a user's function raised, for the end of a message: the file as seen from the working directory,
    the line and the function.

    Args:
        error: the exception of the user's function.

    Returns:
        the place with a space before it; empty where the error was never raised, or this package raised it.

    Example:
        >>> raised_at(ValueError("never raised"))
        ''
    """
    # Frames of importlib are not the user's code.
    machinery = ("<", importlib.__file__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(machinery)]
    if not frames or is_shipped_file(file := Path(frames[-1].filename)):
        return ""
    file_name = file.relative_to(Path.cwd()) if Path.cwd() in file.parents else file
    return f" (at {file_name}:{frames[-1].lineno} in {frames[-1].name})"


def why_failed(error: BaseException) -> str:
    """Describes in one line an exception of a user's code: the class, the message and the place.

    Example:
        >>> why_failed(KeyError("goal"))
        "KeyError: 'goal'"
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}{raised_at(error)}"


def require_open(path: ImportPath) -> None:
    """Refuses code that may not run, and plain text: only a key of type `ImportPath` makes the user confirm its code.

    Raises:
        ConfigError: the code may not run inside this block.
        TypeError: the path is plain text.
    """
    if not isinstance(path, ImportPath):
        raise TypeError(f"{path!r} is plain text; give the key that names code the type ImportPath")
    if not may_run(path):
        raise ConfigError(f"{path} is code that was not asked for, and is not run")


def user_module(path: ImportPath) -> ModuleType:
    """Imports the module of an import path. A console command does not search the working directory, where users
    usually keep their functions; this function searches it last.

    Args:
        path: `package.module:name`.

    Raises:
        Exception: any error of the import; the module may fail in any way.

    Example:
        >>> user_module(ImportPath("math:sqrt")).__name__
        'math'
    """
    require_open(path)
    if path.module == OBJECTS:
        return Objects()
    try:
        return importlib.import_module(path.module)
    except ModuleNotFoundError as error:
        working_directory = str(Path.cwd())
        if error.name != path.module.partition(".")[0] or working_directory in sys.path:
            raise
        sys.path.append(working_directory)
        importlib.invalidate_caches()
        return importlib.import_module(path.module)
