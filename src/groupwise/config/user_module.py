"""Modules of a user, named in a configuration: installed, or lying in the working directory. The one door through which
a configuration runs code.
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
def only(paths: Collection[str] = ()) -> Iterator[None]:
    """Within the block a configuration runs this code and no other: what lies in a folder of somebody else's can be
    read, and nothing of it runs.

    Args:
        paths: what may be imported; none by default.

    Example:
        >>> with only():
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
    """Whether this code may be imported here.

    Args:
        path: of the code.

    Example:
        >>> may_run(ImportPath("math:sqrt"))
        True
    """
    allowed = _allowed.get()
    return allowed is None or path in allowed


def raised_at(error: BaseException) -> str:
    """Where a user's function raised, for the end of a message: the file as seen from the working directory, the line
    and the function.

    Args:
        error: what was caught.

    Returns:
        the place with a space before it; empty where the error was never raised, or by this package.

    Example:
        >>> raised_at(ValueError("never raised"))
        ''
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or _PACKAGE in (file := Path(frames[-1].filename)).parents:
        return ""
    shown = file.relative_to(Path.cwd()) if Path.cwd() in file.parents else file
    return f" (at {shown}:{frames[-1].lineno} in {frames[-1].name})"


def require_open(path: ImportPath) -> None:
    """Refuses code that may not run here, and plain text: a key whose code is imported has the type `ImportPath`, or
    nobody would be asked about it.

    Args:
        path: of the code.

    Raises:
        ConfigError: the code may not run here.
        TypeError: the path is plain text.
    """
    if not isinstance(path, ImportPath):
        raise TypeError(f"{path!r} is plain text; give the key that names code the type ImportPath")
    if not may_run(path):
        raise ConfigError(f"{path} is code that was not asked for, and is not run")


def user_module(path: ImportPath) -> ModuleType:
    """The module of an import path. A console command does not look into the working directory, where a user's own
    functions usually lie; this does, last.

    Args:
        path: `package.module:name`.

    Returns:
        the imported module.

    Raises:
        Exception: whatever the import raises; the module may fail in any way.

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
        here = str(Path.cwd())
        if error.name != path.module.partition(".")[0] or here in sys.path:
            raise
        sys.path.append(here)
        importlib.invalidate_caches()
        return importlib.import_module(path.module)


def user_object(path: ImportPath, key: str) -> Any:
    """Returns the object of an import path.

    Args:
        path: `package.module:name`.
        key: what an error calls the setting.

    Raises:
        ConfigError: the module cannot be imported, or has no such name.

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
    """The class of an import path.

    Args:
        path: `package.module:Class`.

    Raises:
        ValueError: the module cannot be imported, or has no such class.

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
    named = getattr(module, path.name, None)
    if not inspect.isclass(named):
        classes = sorted(
            name
            for name, value in vars(module).items()
            if inspect.isclass(value) and value.__module__ == module.__name__
        )
        raise ValueError(
            f"path = {str(path)!r}: {path.module!r} has no class {path.name!r}; its classes:"
            f" {', '.join(classes) or 'none'}"
        )
    return named
