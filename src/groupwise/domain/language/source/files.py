"""Prompts from JSONL, JSON or Parquet files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Literal, final

from groupwise.config import ConfigError, check_plain, read_json_lines, why_unreadable
from groupwise.config.files import read_whole
from groupwise.domain.language.source.base import Row, Source

_ENDINGS = (".jsonl", ".json", ".parquet")


@final
class Files(Source):
    """Rows of files, shuffled once by the data's seed. One row is one JSON object, or one row of a Parquet table.

    Args:
        paths: `.jsonl`, `.json` (a list of objects) or `.parquet` files.
        held_out_paths: files to evaluate on; where absent, `num_held_out` rows are kept from `paths`.
        shuffle: whether the rows are shuffled before they are split.

    Example:
        >>> Files(paths=("prompts.jsonl",)).endless
        False
    """

    kind: Literal["files"] = "files"
    paths: tuple[str, ...]
    held_out_paths: tuple[str, ...] = ()
    shuffle: bool = True

    @property
    def endless(self) -> bool:
        return False

    def rows(self, num: int | None, seed: int) -> list[Row]:
        return _take(self.paths, "paths", num, seed if self.shuffle else None)

    def held_out_rows(self, num: int | None, seed: int) -> list[Row] | None:
        return (
            _take(self.held_out_paths, "held_out_paths", num, seed if self.shuffle else None)
            if self.held_out_paths
            else None
        )


def _take(paths: tuple[str, ...], key: str, num: int | None, seed: int | None) -> list[Row]:
    rows = [row for path in paths for row in read(Path(path), f"data.source.{key}")]
    if seed is not None:
        random.Random(f"files {seed}").shuffle(rows)
    return rows[:num]


def read(path: Path, key: str = "data.source.paths") -> list[Row]:
    """Reads the rows of one file.

    Raises:
        ConfigError: no such file, an ending that is not known, a line that is no JSON object (with its number).
    """
    if path.suffix not in _ENDINGS:
        raise ConfigError(
            f"{key}: {str(path)!r} ends in {path.suffix!r}; write a file that ends in one of {', '.join(_ENDINGS)}"
        )
    if not path.is_file():
        raise ConfigError(f"{key}: there is no file {str(path)!r} (working directory {str(Path.cwd())!r})")
    if path.suffix == ".parquet":
        return _parquet(path, key)
    if path.suffix == ".jsonl":
        return [row for _, row in read_json_lines(path, key)]
    try:
        rows = json.loads(read_whole(path).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{key}: {path} is no JSON in UTF-8: {why_unreadable(error)}") from None
    if not isinstance(rows, list):
        raise ConfigError(
            f"{key}: {path} holds a {type(rows).__name__}; a .json file of prompts is a list of objects (or end it in"
            " .jsonl, one object a line)"
        )
    return [_object(row, f"{key}: {path}, item {number}") for number, row in enumerate(rows)]


def _object(value: Any, place: str) -> Row:
    if not isinstance(value, dict):
        raise ConfigError(
            f'{place}: is of type {type(value).__name__}; a row is an object such as {{"prompt": "2 + 2 =", "answer":'
            ' "4"}'
        )
    check_plain(value, place, config=False)
    return value


def _parquet(path: Path, key: str) -> list[Row]:
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(path).to_pylist()
    except (
        pyarrow.ArrowException,
        OSError,
        ValueError,
    ) as error:  # what a damaged file makes of its own schema and texts
        raise ConfigError(f"{key}: {path} cannot be read as Parquet: {error}") from error
