"""Records of Python objects that no configuration can describe: what they are, where they are defined, and a hash."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import sys
from pathlib import Path
from types import CodeType
from typing import Any, final

from groupwise.config import Config


@final
class ObjectRecord(Config):
    """A Python object of a run.

    Args:
        argument: what `groupwise.train` got it as, for example `rewards["correct"]`.
        type: the name of its type, and of a function or class its own name.
        where: the file and line of its definition; unset where Python does not know it.
        hash: of its source, of a model's weights, or of rows; unset where it cannot be computed.

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

    What stands in `__main__`, in a notebook above all, in another function, or in a lambda has none.

    Args:
        code: any object.

    Example:
        >>> import_path_of(Path), import_path_of(lambda: 1)
        ('pathlib:Path', None)
    """
    module, name = getattr(code, "__module__", None), getattr(code, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        return None
    home = sys.modules.get(module)
    if home is None or getattr(home, "__spec__", None) is None:
        return None
    place: Any = home
    for part in name.split("."):
        place = getattr(place, part, None)
    return f"{module}:{name}" if place is code else None


def record_of(value: Any, argument: str) -> ObjectRecord:
    """Returns what can be said of an object.

    Args:
        value: the object.
        argument: what `groupwise.train` got it as.

    Example:
        >>> record_of([{"prompt": "a"}], "data").type
        'list of 1'
    """
    code = _code_of(value)
    name = getattr(value, "__qualname__", None)
    kind = ("class" if inspect.isclass(value) else type(value).__qualname__) + (
        f" {name}" if isinstance(name, str) else _size(value)
    )
    # A library's class says nothing of an object of it: the place and the source are those of the user's own code.
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
    here = Path.cwd()
    place = Path(file).relative_to(here) if here in Path(file).parents else file
    return f"{place}:{line}"


def _hash_of_content(value: Any) -> str | None:
    """Returns a hash of weights, rows or a vocabulary; None of an object that is none of them."""
    if inspect.isclass(value) or inspect.isfunction(value):
        return None
    if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "parameters", None)):
        from groupwise.learner.hashing import hash_weights

        return hash_weights(value)
    if isinstance(fingerprint := getattr(value, "_fingerprint", None), str):
        return fingerprint
    if isinstance(value, list | tuple):
        return _digest(json.dumps(value, sort_keys=True, default=repr))
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
    """Returns what a function does, where its source is not known: instructions, names and constants."""
    constants = [_instructions(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts]
    return repr((code.co_code, code.co_names, code.co_varnames, constants))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
