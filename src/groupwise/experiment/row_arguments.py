"""The arguments `data` and `eval_data` of `groupwise.train`: rows, or the path of a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError
from groupwise.domain.objects import EvaluationObjects, RowsObject
from groupwise.experiment.python_objects import Arguments, type_name

_ALLOWED = "a list of dicts, a datasets.Dataset, an IterableDataset, or the path of a .jsonl, .json or .parquet file"


def read_evaluation(arguments: Arguments, eval_data: Any) -> EvaluationObjects:
    """Checks the argument `eval_data`: rows, the path of a file, or a dict of several sets by name.

    Args:
        arguments: takes the objects.
        eval_data: as the caller of `groupwise.train` wrote it; None where it was left out.

    Raises:
        ConfigError: a set holds no rows, or there is none.
    """
    if not isinstance(eval_data, Mapping):
        return read_rows(arguments, "eval_data", eval_data)
    if not eval_data:
        raise ConfigError('eval_data: the dict names no set; write eval_data={"test": ROWS}, or leave it out')
    sets: dict[str, RowsObject | str] = {}
    for place, (name, rows) in enumerate(eval_data.items()):
        read = read_rows(arguments, f"eval_data[{name!r}]", rows, f"eval_data_{place}")
        if read is None:
            raise ConfigError(f"eval_data[{name!r}]: there are no rows (None); give {_ALLOWED}")
        sets[str(name)] = read
    return sets


def read_rows(
    arguments: Arguments, argument: str, rows: Any, object_name: str | None = None
) -> RowsObject | str | None:
    """Checks the rows of an argument.

    Args:
        arguments: the record to which the object is added.
        argument: `data`, `eval_data`, or a set of it.
        rows: as the caller wrote them; None where they were left out.
        object_name: the name of the object in the run; that of the argument where unset.

    Raises:
        ConfigError: the value cannot be read as rows, or holds none.
    """
    if rows is None:
        return None
    if isinstance(rows, str | Path):
        return str(rows)
    if advice := _advice(rows):
        raise ConfigError(
            f"{argument}: an object of type {type_name(rows)} was given; allowed: {_ALLOWED}; write {advice}"
        )
    num_rows = len(rows) if hasattr(rows, "__len__") else None
    if num_rows == 0:
        raise ConfigError(f"{argument}: it holds no rows; give at least {'two' if argument == 'data' else 'one'}")
    return RowsObject(arguments.hold(object_name or argument, rows, argument), num_rows)


def _advice(rows: Any) -> str | None:
    """Returns the text to write in place of an object that cannot be read as rows repeatedly; None for one that can."""
    library = type(rows).__module__.partition(".")[0]
    if isinstance(rows, Mapping):
        return 'data["train"], one of its splits' if library == "datasets" else '[{"prompt": ...}, ...]'
    if library in ("pandas", "polars"):
        return 'data.to_dict("records")' if library == "pandas" else "data.to_dicts()"
    if hasattr(rows, "__next__"):
        return "list(data): a generator can be read only once"
    return None if hasattr(rows, "__iter__") else '[{"prompt": ...}, ...]'
