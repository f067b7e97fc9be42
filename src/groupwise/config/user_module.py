"""Modules of a user, named in a configuration: installed, or lying in the working directory."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

_PACKAGE = Path(__file__).resolve().parents[1]


def raised_at(error: BaseException) -> str:
    """Where a user's function raised, for the end of a message: the file as seen from the working directory, the line and the function.

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


def user_module(name: str) -> ModuleType:
    """The module of this name. A console command does not look into the working directory, where a user's own functions usually lie; this does, last.

    Args:
        name: dotted name of the module.

    Returns:
        the imported module.

    Raises:
        Exception: whatever the import raises; the module may fail in any way.

    Example:
        >>> user_module("math").__name__
        'math'
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        here = str(Path.cwd())
        if error.name != name.partition(".")[0] or here in sys.path:
            raise
        sys.path.append(here)
        importlib.invalidate_caches()
        return importlib.import_module(name)
