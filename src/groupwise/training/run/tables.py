"""Tables that a domain makes at the end of a run, written into the run folder for programs and for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from groupwise.checkpoint import write_file
from groupwise.domain.protocol import Cell, Interval, Table


def write_tables(folder: Path, tables: Sequence[Table]) -> None:
    """Writes `folder/NAME.json` and `folder/NAME.md` for each table.

    Args:
        folder: the folder of the files, which is made for the first table.

    Raises:
        StorageError: a file could not be written.
    """
    for table in tables:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / f"{table.name}.json", json.dumps(as_json(table), indent=2, ensure_ascii=False) + "\n")
        write_file(folder / f"{table.name}.md", as_markdown(table))


def as_json(table: Table) -> dict[str, Any]:
    """Returns the table as JSON-able values; an interval is `{"mean", "low", "high"}`.

    Example:
        >>> as_json(Table("lead", "A lead", ["by", "1 shot"], [["kNN", Interval(0.1, 0.0, 0.2)]]))["rows"]
        [['kNN', {'mean': 0.1, 'low': 0.0, 'high': 0.2}]]
    """
    rows = [[vars(cell) if isinstance(cell, Interval) else cell for cell in row] for row in table.rows]
    return {
        "name": table.name,
        "title": table.title,
        "columns": list(table.columns),
        "rows": rows,
        "notes": list(table.notes),
    }


def as_markdown(table: Table) -> str:
    """Returns the table as Markdown.

    Example:
        >>> print(as_markdown(Table("lead", "A lead", ["by", "1 shot"], [["kNN", 0.25]])))
        A lead
        <BLANKLINE>
        | by | 1 shot |
        |---|---|
        | kNN | 0.250 |
        <BLANKLINE>
    """
    lines = [table.title, "", _row(table.columns), "|" + "---|" * len(table.columns)]
    lines += [_row([as_text(cell) for cell in row]) for row in table.rows]
    return "\n".join([*lines, *(["", *table.notes] if table.notes else []), ""])


def as_text(cell: Cell) -> str:
    """Returns a cell for people: an interval as `mean [low, high]`, an empty cell as `-`.

    Example:
        >>> as_text(Interval(0.85, 0.8412, 0.859)), as_text(None)
        ('0.850 [0.841, 0.859]', '-')
    """
    if isinstance(cell, Interval):
        return f"{cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}]"
    return "-" if cell is None else cell if isinstance(cell, str) else f"{cell:.3f}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
