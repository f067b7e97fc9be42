"""The tables that a domain made at the end of a run, such as a selector beside its baselines, for the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from groupwise.report.members import shortened
from groupwise.runs import Run, is_number

MOST_TABLES, MOST_ROWS, MOST_COLUMNS, MOST_CHARACTERS = 12, 200, 24, 200


@final
@dataclass(frozen=True)
class DomainTable:
    """A table as texts; what a file holds beyond the limits of a page is left out.

    Args:
        title: one sentence.
        columns: heads of the columns.
        rows: texts, one a column.
        notes: sentences below the table.
    """

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str]


def domain_tables(run: Run) -> list[DomainTable]:
    """Reads the tables of a run, those of `tables/*.json` that can be read, in the order of their files' names."""
    tables = [_table(content) for content in run.tables.values()]
    return [table for table in tables if table is not None][:MOST_TABLES]


def _table(content: Mapping[str, Any]) -> DomainTable | None:
    columns, rows, notes = content.get("columns"), content.get("rows"), content.get("notes", [])
    if not isinstance(columns, list) or not isinstance(rows, list) or not isinstance(notes, list):
        return None
    texts = [[cell_text(cell) for cell in row[:MOST_COLUMNS]] for row in rows[:MOST_ROWS] if isinstance(row, list)]
    width = min(len(columns), MOST_COLUMNS)
    return DomainTable(
        shortened(content.get("title", content.get("name", "")), 300),
        [shortened(column, MOST_CHARACTERS) for column in columns[:MOST_COLUMNS]],
        [row[:width] + [""] * (width - len(row)) for row in texts],
        [shortened(note, 600) for note in notes[:20]],
    )


def cell_text(cell: object) -> str:
    """Returns a cell for people: a number with three decimals, an interval as `mean [low, high]`, nothing as a dash.

    Example:
        >>> [cell_text(cell) for cell in (0.25, {"mean": 0.5, "low": 0.4, "high": 0.6}, None, "kNN", 3)]
        ['0.250', '0.500 [0.400, 0.600]', '–', 'kNN', '3']
    """
    if cell is None:
        return "–"
    if isinstance(cell, Mapping) and all(is_number(cell.get(name)) for name in ("mean", "low", "high")):
        return f"{_decimal(cell['mean'])} [{_decimal(cell['low'])}, {_decimal(cell['high'])}]"
    return _decimal(cell) if is_number(cell) else shortened(cell, MOST_CHARACTERS)


def _decimal(value: float) -> str:
    return (str(value) if isinstance(value, int) else f"{value:.3f}").replace("-", "\u2212")
