"""Records of Python objects that no configuration can describe: type, place of definition, and hash."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
import sys
from pathlib import Path
from types import CodeType
from typing import Any, final

from groupwise.config import Config


@final
class ObjectRecord(Config):
    """A Python object of a run.

    Args:
        argument: the argument of `groupwise.train` that is the object, for example `rewards["correct"]`.
        type: the name of the object's type; for a function or class, with its own name.
        where: the file and line of its definition; unset where Python does not know them.
        hash: the hash of its source, of a model's weights, or of rows; unset where it cannot be computed.

    Example:
        >>> ObjectRecord(argument="data", type="list of 3").hash is None
        True
    """

    argument: str
    type: str
    where: str | None = None
    hash: str | None = None

    def __str__(self) -> str:
        return f"{self.argument} ({self.type}{f', {self.where}' if self.where else ''})"


def import_path_of(code: Any) -> str | None:
    """Returns the import path by which another process finds a function or class; None where there is none.

    Objects that are defined in `__main__` (a notebook, for example) or inside a function have none, and neither has a
    lambda.

    Example:
        >>> import_path_of(Path), import_path_of(lambda: 1)
        ('pathlib:Path', None)
    """
    module, name = getattr(code, "__module__", None), getattr(code, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        return None
    loaded_module = sys.modules.get(module)
    if loaded_module is None or getattr(loaded_module, "__spec__", None) is None:
        return None
    value: Any = loaded_module
    for part in name.split("."):
        value = getattr(value, part, None)
    return f"{module}:{name}" if value is code else None


def record_of(value: Any, argument: str) -> ObjectRecord:
    """Describes an object by its type, the place of its definition and a hash.

    Args:
        argument: the argument of `groupwise.train` that is the object.

    Example:
        >>> record_of([{"prompt": "a"}], "data").type
        'list of 1'
    """
    code = _code_of(value)
    name = getattr(value, "__qualname__", None)
    kind = ("class" if inspect.isclass(value) else type(value).__qualname__) + (
        f" {name}" if isinstance(name, str) else _size(value)
    )
    # The place and the source are recorded of the user's own code only: a library's class does not tell its objects
    # apart.
    user_code = code is value or inspect.isfunction(code) or import_path_of(code) is None
    return ObjectRecord(
        argument=argument,
        type=kind[:200],
        where=_where(code) if user_code and code.__module__ != "builtins" else None,
        hash=_hash_of_content(value) or (_hash_of_source(code) if user_code else None),
    )


def _code_of(value: Any) -> Any:
    """Returns the function or class that defines an object."""
    while isinstance(value, functools.partial):
        value = value.func
    value = getattr(value, "__func__", value)
    return value if inspect.isfunction(value) or inspect.isclass(value) else type(value)


def _size(value: Any) -> str:
    try:
        return f" of {len(value)}" if not callable(value) else ""
    except TypeError:
        return ""


def _where(code: Any) -> str | None:
    try:
        file = inspect.getsourcefile(code) or inspect.getfile(code)
        line = code.__code__.co_firstlineno if inspect.isfunction(code) else inspect.getsourcelines(code)[1]
    except (OSError, TypeError):
        return None
    working_directory = Path.cwd()
    place = Path(file).relative_to(working_directory) if working_directory in Path(file).parents else file
    return f"{place}:{line}"


def _hash_of_content(value: Any) -> str | None:
    """Returns a hash of weights, rows or a vocabulary; None for an object of another sort."""
    if inspect.isclass(value) or inspect.isfunction(value):
        return None
    if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "parameters", None)):
        from groupwise.learner.hashing import hash_weights

        return hash_weights(value)
    if isinstance(fingerprint := getattr(value, "_fingerprint", None), str):
        return fingerprint
    if isinstance(value, list | tuple):
        return _digest(json.dumps(value, sort_keys=True, default=_without_address))
    if callable(getattr(value, "get_vocab", None)):
        return _digest(json.dumps(sorted(value.get_vocab().items())))
    return None


def _hash_of_source(code: Any) -> str | None:
    if inspect.isfunction(code) and code.__name__ == "<lambda>":
        # The source of a lambda is the whole statement around it.
        return _digest(_instructions(code.__code__))
    try:
        return _digest(inspect.getsource(code))
    except (OSError, TypeError):
        return _digest(_instructions(code.__code__)) if inspect.isfunction(code) else None


def _instructions(code: CodeType) -> str:
    """Returns a function's instructions, names and constants as a text, where its source is not known."""
    constants = [_instructions(value) if isinstance(value, CodeType) else _constant(value) for value in code.co_consts]
    return repr((code.co_code, code.co_names, code.co_varnames, constants))


def _constant(value: Any) -> str:
    """Returns a constant as a text that is the same in every process: a set has another order in each."""
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)


def _without_address(value: Any) -> str:
    """Returns an object as a text that is the same in every process, which says nothing of where it lies in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
