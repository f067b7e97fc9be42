"""Modules of a user, named in a configuration: installed, or lying in the working directory. A configuration runs code
only through this module.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType

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
    # An import that fails is raised by Python's own machinery, which is no place of the user's.
    machinery = ("<", importlib.__file__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(machinery)]
    if not frames or _PACKAGE in (file := Path(frames[-1].filename)).parents:
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
