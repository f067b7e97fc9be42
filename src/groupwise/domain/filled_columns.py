"""Rows of data with the same columns in all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def filled_columns(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rows with None for the columns that only other rows have, as `datasets` reads them. Rewards get the
    columns that all members of a batch have, so one row that lacks a column would take it from its whole batch.

    Example:
        >>> filled_columns([{"prompt": "1 ?"}, {"prompt": "2 ?", "hint": "two"}])
        [{'prompt': '1 ?', 'hint': None}, {'prompt': '2 ?', 'hint': 'two'}]
    """
    empty = dict.fromkeys(name for row in rows for name in row)
    return [{**empty, **row} for row in rows]
