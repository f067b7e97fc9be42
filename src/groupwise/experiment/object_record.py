"""Records of Python objects that no configuration can describe: type, place of definition, and hash."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any, final

from groupwise.config import Config, ConfigError, ImportPath, object_path, validate
from groupwise.domain.exported import DomainObjects, EvaluationObjects, RowsObject


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
        from groupwise.learner.copy import hash_weights

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


# The objects of a program in a run, and the configuration keys that refer to them.

DOMAIN_INSTANCE, MODULE = "domain_instance", "module"
"""Names of a domain that is built already, and of a module for a domain."""


@final
@dataclass
class Arguments:
    """Objects of a program, and the keys that refer to them.

    Args:
        objects: name -> object, for `groupwise.config.holding`.
        records: name -> the record in `config.json` of an object that no import path names.
        model: the domain's model: a folder, or the import paths of a model and its tokenizer.
        domain: the keys of the domain's table that follow from its instance, class or kind.
        objective: the keys of the experiment that state the method.
        rewards, data, eval_data: the arguments in the form that the domain takes.
        callbacks, tools: import paths; None where the argument was left out.
    """

    objects: dict[str, Any] = field(default_factory=dict)
    records: dict[str, ObjectRecord] = field(default_factory=dict)
    model: str | tuple[ImportPath, ImportPath] | None = None
    domain: dict[str, Any] = field(default_factory=dict)
    objective: dict[str, Any] = field(default_factory=dict)
    rewards: dict[str, dict[str, Any]] | None = None
    data: RowsObject | str | None = None
    eval_data: EvaluationObjects = None
    callbacks: list[str] | None = None
    tools: tuple[ImportPath, ...] | None = None

    @property
    def for_domain(self) -> DomainObjects:
        """The objects that the domain's configuration takes."""
        return DomainObjects(self.model, self.rewards, self.data, self.eval_data, self.tools)

    def refer(self, name: str, value: Any, argument: str) -> ImportPath:
        """Returns the import path of an object: its own where another process can import it, otherwise that of an
        object which the run holds.

        Args:
            name: the object's name in the run.
            argument: the argument of `groupwise.train` that is the object.
        """
        path = import_path_of(value)
        if path is not None:
            return ImportPath(path)
        return self.hold(name, value, argument)

    def hold(self, name: str, value: Any, argument: str) -> ImportPath:
        """Adds an object to those that the run holds, and returns its import path.

        Args:
            name: the object's name in the run.
            argument: the argument of `groupwise.train` that is the object.
        """
        self.objects[name] = value
        self.records[name] = record_of(value, argument)
        return object_path(name)


def type_name(value: Any) -> str:
    """Returns the name of a value's type, or of a class itself, with its module.

    Example:
        >>> type_name(3), type_name(ImportPath)
        ('int', 'groupwise.config.import_path.ImportPath')
    """
    kind = value if inspect.isclass(value) else type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# Objects that a run asks for again: those that are missing, and those that changed.

MOST_SHOWN = 5


def objects_of(config: Mapping[str, Any], where: str) -> dict[str, ObjectRecord]:
    """Returns the objects that a run's `config.json` asks for, by name.

    Args:
        config: the content of the file.
        where: the name of the file in an error.

    Raises:
        ConfigError: a record of an object cannot be read.
    """
    records = config.get("objects", {})
    if not isinstance(records, Mapping):
        raise ConfigError(f"{where}: objects is of type {type(records).__name__}; it is a table of objects by name")
    return {str(name): validate(ObjectRecord, record, f"{where}: objects.{name}") for name, record in records.items()}


def check_objects(folder: Path, records: Mapping[str, ObjectRecord], arguments: Arguments) -> list[str]:
    """Refuses a run whose objects were not handed over again, and objects that the run does not know.

    Args:
        records: the objects that the run asks for.
        arguments: the objects of this call.

    Returns:
        a sentence for each object that differs from the object of the same name in the record.

    Raises:
        ConfigError: an object is missing or unknown; the message names all of them, and how to hand them over.
    """
    missing = [record for name, record in records.items() if name not in (*arguments.objects, DOMAIN_INSTANCE)]
    if missing:
        raise ConfigError(
            f"run folder {folder}: it was trained with Python objects that no file describes:"
            f" {', '.join(map(str, missing[:MOST_SHOWN]))}{more(missing)}; hand them over again:"
            f" groupwise.resume({str(folder)!r}, {_keywords(missing)}), or groupwise.train(..., out={str(folder)!r},"
            " resume=True) in the program that made it"
        )
    unknown = [record for name, record in arguments.records.items() if name not in records]
    if unknown:
        raise ConfigError(
            f"run folder {folder}: it has no use for {', '.join(map(str, unknown[:MOST_SHOWN]))}{more(unknown)}; its"
            f" objects: {', '.join(map(str, records.values())) or 'none'}"
        )
    return [
        f"{record.argument} is another one than when the run began ({_place(record)} before, {_place(current)} now):"
        " the run goes on with it, and may not repeat the uninterrupted run"
        for name, record in records.items()
        if (current := arguments.records.get(name)) is not None and current.hash != record.hash
    ]


def _keywords(records: list[ObjectRecord]) -> str:
    names = dict.fromkeys(record.argument.partition("[")[0] for record in records)
    # A tokenizer is given beside its model.
    if "tokenizer" in names:
        names = {"model": None} | {name: None for name in names if name != "tokenizer"}
        return ", ".join("model=(model, tokenizer)" if name == "model" else f"{name}=..." for name in names)
    return ", ".join(f"{name}=..." for name in names)


def _place(record: ObjectRecord) -> str:
    return f"{record.type} of {record.where}" if record.where else record.type


def more(entries: Sequence[Any]) -> str:
    """Returns the words " and N more" for a list of which a message shows the first `MOST_SHOWN` entries."""
    return f" and {len(entries) - MOST_SHOWN} more" if len(entries) > MOST_SHOWN else ""
