"""Modules of a user, named in a configuration: installed, or lying in the working directory. A configuration runs code
only through this module.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from groupwise.config.errors import ConfigError
from groupwise.config.import_path import ImportPath
from groupwise.config.objects import OBJECTS, Objects

_PACKAGE = Path(__file__).resolve().parents[1]

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
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or _PACKAGE in (file := Path(frames[-1].filename)).parents:
        return ""
    file_name = file.relative_to(Path.cwd()) if Path.cwd() in file.parents else file
    return f" (at {file_name}:{frames[-1].lineno} in {frames[-1].name})"


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


def user_object(path: ImportPath, key: str) -> Any:
    """Returns the object of an import path.

    Args:
        path: `package.module:name`.
        key: the name of the setting in errors.

    Raises:
        ConfigError: the module cannot be imported, or lacks the name.

    Example:
        >>> user_object(ImportPath("math:pi"), "number")
        3.141592653589793
    """
    try:
        module = user_module(path)
    # A user's module may fail in any way while it is imported.
    except Exception as error:
        raise ConfigError(
            f"{key} = {str(path)!r}: the module {path.module!r} cannot be imported: {type(error).__name__}: {error}; it"
            " must be installed or lie in the working directory"
        ) from error
    if not hasattr(module, path.name):
        raise ConfigError(f"{key} = {str(path)!r}: {path.module!r} has no {path.name!r}")
    return getattr(module, path.name)


def user_class(path: ImportPath) -> type[Any]:
    """Returns the class of an import path.

    Args:
        path: `package.module:Class`.

    Raises:
        ValueError: the module cannot be imported, or lacks the class.

    Example:
        >>> user_class(ImportPath("fractions:Fraction")).__name__
        'Fraction'
        >>> user_class(ImportPath("fractions:Fractoin"))
        Traceback (most recent call last):
        ValueError: path = 'fractions:Fractoin': 'fractions' has no class 'Fractoin'; its classes: Fraction
    """
    try:
        module = user_module(path)
    # A user's module may fail in any way while it is imported.
    except Exception as error:
        message = (
            f"path = {str(path)!r}: the module {path.module!r} cannot be imported: {type(error).__name__}: {error}"
        )
        raise ValueError(f"{message}; it must be installed or lie in the working directory") from error
    class_object = getattr(module, path.name, None)
    if not inspect.isclass(class_object):
        classes = sorted(
            name
            for name, value in vars(module).items()
            if inspect.isclass(value) and value.__module__ == module.__name__
        )
        raise ValueError(
            f"path = {str(path)!r}: {path.module!r} has no class {path.name!r}; its classes:"
            f" {', '.join(classes) or 'none'}"
        )
    return class_object
