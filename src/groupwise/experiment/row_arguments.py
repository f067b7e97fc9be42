"""The arguments `data` and `eval_data` of `groupwise.train`: rows, or the path of a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError
from groupwise.domain.objects import RowsObject
from groupwise.experiment.python_objects import Arguments, type_name

_ALLOWED = "a list of dicts, a datasets.Dataset, an IterableDataset, or the path of a .jsonl, .json or .parquet file"


def one_set(eval_data: Any) -> Any:
    """Returns the rows of the only evaluation set, which may be a dict of one name.

    Args:
        eval_data: rows, or name -> rows.

    Raises:
        ConfigError: there are several sets.
    """
    if not isinstance(eval_data, Mapping) or type(eval_data).__module__.startswith("datasets"):
        return eval_data
    if len(eval_data) != 1:
        raise ConfigError(
            f"eval_data: {len(eval_data)} evaluation sets were given ({', '.join(map(str, eval_data))}), and a run has"
            " one; give one of them"
        )
    return next(iter(eval_data.values()))


def read_rows(arguments: Arguments, argument: str, rows: Any) -> RowsObject | str | None:
    """Checks the rows of an argument.

    Args:
        arguments: the record to which the object is added.
        argument: `data` or `eval_data`.
        rows: the value of the argument; None where it was left out.

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
    return RowsObject(arguments.hold(argument, rows, argument), num_rows)


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
