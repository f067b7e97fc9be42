"""The output of commands: one console, plain tables, and silence on every process but the first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.processes import is_first_process

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


@cache
def console() -> Console:
    """Returns the console of this process, which is silent unless the process is the first.

    Example:
        >>> console() is console()
        True
    """
    from rich.console import Console

    terminal = Console(highlight=False, quiet=not is_first_process(), soft_wrap=True)
    if not terminal.is_terminal:
        # A file or a pipe has no width of its own; a table should not be broken for one.
        terminal.width = 200
    return terminal


def say(text: str) -> None:
    """Prints sentences: broken between words on a terminal, unbroken in a file or a pipe.

    Args:
        text: what is printed. A command or a path that somebody copies is printed by the console itself, which never
            breaks it.

    Example:
        >>> say("2 steps, 3 s")
        2 steps, 3 s
    """
    from rich.text import Text

    out = console()
    out.print(Text(text), soft_wrap=not out.is_terminal)


def counted(number: int, word: str) -> str:
    """Writes a count with its noun.

    Args:
        number: the count.
        word: the noun in the singular; its plural ends in s.

    Example:
        >>> counted(1, "step"), counted(2, "step")
        ('1 step', '2 steps')
    """
    return f"{number} {word}{'' if number == 1 else 's'}"


def within(path: Path) -> str:
    """Returns a path relative to the working directory where it lies below that, otherwise as it is.

    Example:
        >>> within(Path.cwd() / "runs" / "a"), within(Path("/tmp"))
        ('runs/a', '/tmp')
    """
    return str(path.relative_to(Path.cwd()) if Path.cwd() in path.parents else path)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None, numbers: Sequence[str] = ()
) -> Table:
    """Builds a table without lines between rows; the columns in `numbers` are aligned to the right.

    Args:
        columns: the heads of the columns.
        rows: one sequence of cells a row.
        title: the line above the table.
        numbers: the heads of columns of numbers.

    Example:
        >>> table(["metric", "value"], [("reward", 0.5)], numbers=["value"]).row_count
        1
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        # Names are kept whole: a broken key cannot be copied.
        grid.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(str(cell)) for cell in row))
    return grid


def shorten(text: object, width: int) -> str:
    """Returns one line of at most `width` characters.

    Example:
        >>> shorten("a\\nb" + "c" * 20, 8)
        'a\\u23ceb ...'
    """
    line = str(text).replace("\n", "⏎")
    return line if len(line) <= width else line[: max(0, width - 5)] + " ..."
