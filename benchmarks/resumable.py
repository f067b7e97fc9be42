"""Machinery of the benchmarks that take a night: a line of JSON for each result, written as soon as it is there, so
that the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any


def append_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Appends a line for each row, in one write, also behind a line that was cut off.

    Args:
        path: a file of JSON lines; it and its folder may be missing.
        rows: JSON-able values.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    cut = path.is_file() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * cut + "".join(json.dumps(row) + "\n" for row in rows))


def table_row(cells: Iterable[str]) -> str:
    """Returns a row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def minutes(text: str) -> float:
    """Reads a deadline from the command line.

    Raises:
        argparse.ArgumentTypeError: it is no number above 0 and up to 10000.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of minutes; write more than 0 and at most 10000")
    return number


def run_main(main: Callable[[], int]) -> None:
    """Runs a program and exits with its status; Ctrl-C and SIGTERM end it, and what it started, with one line."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on with the run that was cut off")


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
