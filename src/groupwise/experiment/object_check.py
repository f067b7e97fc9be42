"""Objects that a run asks for again: those that are missing, and those that changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError, validate
from groupwise.experiment.object_record import ObjectRecord
from groupwise.experiment.python_objects import DOMAIN_INSTANCE, Arguments

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
