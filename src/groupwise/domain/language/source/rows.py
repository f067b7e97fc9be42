"""Prompts from rows that a Python program holds, or that a module defines."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any, Literal, final

from groupwise.config import ConfigError, ImportPath, InModule, user_object
from groupwise.domain.language.source.base import Row, Source


@final
class Rows(Source):
    """Rows of a Python object: a list of dicts, a `datasets.Dataset`, anything that gives a dict a row each time it is
    gone through. `groupwise.train(..., data=rows)` writes this source.

    Args:
        path: `package.module:name` of the rows.
        held_out_path: of the rows to evaluate on; where absent, `num_held_out` rows are kept from `path`.
        streamed: whether the rows have no length, so that `num_train` says how many are read.
        shuffle: whether the rows are shuffled before they are split; a stream is read in its order.

    Example:
        >>> Rows(path="package.module:rows").endless
        False
    """

    kind: Literal["rows"] = "rows"
    path: InModule
    held_out_path: InModule | None = None
    streamed: bool = False
    shuffle: bool = True

    @property
    def endless(self) -> bool:
        return self.streamed

    def rows(self, num: int | None, seed: int) -> list[Row]:
        rows = _read(self.path, num if self.streamed else None, "data")
        if self.shuffle and not self.streamed:
            random.Random(f"rows {seed}").shuffle(rows)
        return rows[:num]

    def held_out_rows(self, num: int | None, seed: int) -> list[Row] | None:
        return None if self.held_out_path is None else _read(self.held_out_path, num, "eval_data")


def _read(path: ImportPath, num: int | None, argument: str) -> list[Row]:
    holder = user_object(path, "data.source.path" if argument == "data" else "data.source.held_out_path")
    try:
        rows: list[Any] = list(islice(iter(holder), num))
    # The rows are the user's and may fail in any way.
    except Exception as error:
        raise ConfigError(
            f"{argument}: the rows of {path} (of type {type(holder).__name__}) cannot be read: {type(error).__name__}:"
            f" {error}; give a list of dicts, or a datasets.Dataset"
        ) from error
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ConfigError(
                f"{argument}: row {number} is of type {type(row).__name__}; a row is a dict such as"
                ' {"prompt": "2 + 2 =", "answer": "4"}'
            )
    return rows
