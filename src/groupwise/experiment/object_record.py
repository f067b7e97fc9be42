"""Python objects that a program hands to a run and that no configuration can describe: their records, and the sources
of the code that a run works with.
"""

import contextlib
import functools
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

from pydantic import ConfigDict

from groupwise.config import Config, ConfigError, ImportPath, Named, held_object, is_object, validate


@final
class ObjectRecord(Config):
    """A Python object of a run.

    Args:
        argument: the argument of `groupwise.train` that is the object, for example `rewards["correct"]`.
        type: the name of the object's type; for a function or class, with its own name.

    Example:
        >>> str(ObjectRecord(argument="data", type="list of 3"))
        'data (list of 3)'
    """

    # Earlier versions recorded `where` as well.
    model_config = ConfigDict(extra="ignore")

    argument: str
    type: str

    def __str__(self) -> str:
        return f"{self.argument} ({self.type})"


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
    """Describes an object by its type.

    Args:
        argument: the argument of `groupwise.train` that is the object.

    Example:
        >>> record_of([{"prompt": "a"}], "data").type
        'list of 1'
    """
    name = getattr(value, "__qualname__", None)
    kind = "class" if inspect.isclass(value) else type(value).__qualname__
    size = f" of {len(value)}" if hasattr(value, "__len__") and not callable(value) else ""
    return ObjectRecord(argument=argument, type=f"{kind} {name}"[:200] if isinstance(name, str) else kind + size)


def _code_of(value: Any) -> Any:
    """Returns the function or class that defines an object."""
    while isinstance(value, functools.partial):
        value = value.func
    value = getattr(value, "__func__", value)
    return value if inspect.isfunction(value) or inspect.isclass(value) else type(value)


def sources_of(references: Iterable[Named]) -> dict[str, str]:
    """Returns import path -> source text of the code that an experiment names. Code whose text cannot be read is left
    out, and so are a model and its tokenizer, which are not code of the user's.

    Args:
        references: the places at which the experiment names code.

    Example:
        >>> from groupwise.config import import_paths
        >>> class Hooks(Config):
        ...     after: ImportPath
        >>> sources_of(import_paths(Hooks(after=ImportPath("colorsys:rgb_to_hsv"))))["colorsys:rgb_to_hsv"][:20]
        'def rgb_to_hsv(r, g,'
    """
    named = {reference.path for reference in references if not _is_model(reference)}
    return {str(path): text for path in sorted(named) if (text := _source(path)) is not None}


def _is_model(reference: Named) -> bool:
    return is_object(reference.path) and reference.key.startswith("domain.model.")


def _source(path: ImportPath) -> str | None:
    """Returns the text of a function or class. For code that this process does not import, it returns the text of the
    whole file.
    """
    code = held_object(path.name) if is_object(path) else sys.modules.get(path.module)
    for name in () if is_object(path) else path.name.split("."):
        code = getattr(code, name, None)
    with contextlib.suppress(OSError, TypeError, ImportError, ValueError):
        if code is not None:
            return inspect.getsource(_code_of(code))
        if path.name and (spec := find_spec(path.module)) is not None and spec.origin is not None:
            return Path(spec.origin).read_text(encoding="utf-8")
    return None


# The objects of a program in a run, and the configuration keys that refer to them.

DOMAIN_INSTANCE, MODULE = "domain_instance", "module"
"""Names of two objects: a domain that is built already, and a module for a domain."""


# Objects that have to be handed over again when a run is resumed.

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


def check_objects(folder: Path, records: Mapping[str, ObjectRecord], handed: Mapping[str, ObjectRecord]) -> None:
    """Refuses a run whose objects were not handed over again, and objects that the run does not know.

    Args:
        records: the objects that the run asks for.
        handed: the objects of this call.

    Raises:
        ConfigError: an object is missing or unknown; the message names all of them, and how to hand them over.
    """
    missing = [record for name, record in records.items() if name not in handed]
    if missing:
        keywords = ", ".join(
            f"{name}=..." for name in dict.fromkeys(each.argument.partition("[")[0] for each in missing)
        )
        raise ConfigError(
            f"run folder {folder}: it was trained with Python objects that no file describes:"
            f" {', '.join(map(str, missing[:MOST_SHOWN]))}{more(missing)}; hand them over again:"
            f" groupwise.resume({str(folder)!r}, {keywords}), or groupwise.train(..., out={str(folder)!r},"
            " resume=True) in the program that made it"
        )
    unknown = [record for name, record in handed.items() if name not in records]
    if unknown:
        raise ConfigError(
            f"run folder {folder}: it has no use for {', '.join(map(str, unknown[:MOST_SHOWN]))}{more(unknown)}; its"
            f" objects: {', '.join(map(str, records.values())) or 'none'}"
        )


def more(entries: Sequence[Any]) -> str:
    """Returns the words " and N more" for a list of which a message shows the first `MOST_SHOWN` entries."""
    return f" and {len(entries) - MOST_SHOWN} more" if len(entries) > MOST_SHOWN else ""
