"""The output of commands: one console, plain tables, and silence on every process but the first."""

import errno
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from groupwise.config.tables import visible
from groupwise.extras import advice
from groupwise.plugins import is_shipped_file
from groupwise.processes import ProcessLeftError, is_first_process, is_out_of_memory


@cache
def console() -> Console:
    """Returns the console of this process, which is silent unless the process is the first.

    Example:
        >>> console() is console()
        True
    """

    terminal = Console(highlight=False, quiet=not is_first_process(), soft_wrap=True)
    if not terminal.is_terminal:
        # Files and pipes have no width, and tables in them should not be wrapped.
        terminal.width = 200
    return terminal


def print_text(text: str) -> None:
    """Prints sentences: broken between words on a terminal, unbroken in a file or a pipe.

    Args:
        text: what is printed; a path that is longer than a line stays whole.

    Example:
        >>> print_text("2 steps, 3 s")
        2 steps, 3 s
    """

    out = console()
    out.print(Text(visible(text), overflow="ignore"), soft_wrap=not out.is_terminal)


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
    """Returns a path relative to the working directory where it is below that, otherwise as it is.

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

    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        # Names are kept whole: a broken key cannot be copied.
        grid.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(visible(cell)) for cell in row))
    return grid


def shorten(text: object, width: int) -> str:
    """Returns one line of at most `width` characters.

    Example:
        >>> shorten("a\\nb" + "c" * 20, 8)
        'a\\u23ceb ...'
    """
    line = visible(text).replace("\n", "⏎")
    return line if len(line) <= width else line[: max(0, width - 5)] + " ..."


# Errors at the end of a command: a user's mistake is one message, and a defect of the program keeps its traceback.

SECONDS_FOR_THE_FIRST = 5.0
"""The time for which another process waits for the first process to print its error."""

_SMALLER = (
    "a smaller train.micro_batch_members, train.group_size or train.prompts_per_step, or a smaller model, or give the"
    " process more memory"
)


def message_for_user(error: BaseException) -> str | None:
    """Returns the message of an error that was raised on purpose, or None for a defect.

    Three kinds of errors are meant for the user: those raised by a `raise` of this package, whose message contains the
    remedy, lack of memory, and paths that the system refuses. Any other error, from a library or from an operation that
    failed in a line of this package, is a defect.

    Args:
        error: what was caught.

    Example:
        >>> message_for_user(ValueError("raised elsewhere")) is None
        True
    """
    if is_out_of_memory(error):
        return (
            f"memory ran out ({str(error).strip().partition(chr(10))[0][:200] or type(error).__name__}); write"
            f" {_SMALLER}"
        )
    if isinstance(error, ValueError) and sys.stdout is not None and sys.stdout.closed:
        return (
            "standard output was closed by something that this command called (a reward, a callback); what was computed"
            " is in the run's folder"
        )
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        return advice(error.name.partition(".")[0])
    # Code of ours checks that a file exists before it opens it, so a missing file here is a bug.
    if isinstance(error, OSError) and error.filename is not None and error.errno != errno.ENOENT:
        return f"{str(error.filename)[:300]}: {error.strerror}"
    if not isinstance(error, (ValueError, RuntimeError, OSError)) or isinstance(error, NotImplementedError):
        return None
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not is_shipped_file(frames[-1].filename) or not (frames[-1].line or "").startswith("raise"):
        return None
    return str(error)


def print_error(error: BaseException) -> int:
    """Prints an error and returns the exit status: 2 for the user's, 1 for ours.

    Under `torchrun` every process usually raises the same error, and rank 0 prints it. The others wait: `torchrun`
    kills them when rank 0 ends, and a process that is still alive prints its own error. A process whose connection
    broke waits longest, since the process that left has the real error.

    Args:
        error: what was caught.

    Returns:
        the exit status; 1 also where a connection broke.
    """
    message = message_for_user(error)
    rank, status = os.environ.get("RANK", "0"), 2
    if _of_the_connection(error):
        time.sleep(2 * SECONDS_FOR_THE_FIRST)
        message = "the connection to another process broke; where that one ended, what it said says why: "
        message, status = f"{message}{type(error).__name__}: {error}", 1
    elif isinstance(error, ProcessLeftError):
        # The process that left the run prints the real error first.
        time.sleep(2 * SECONDS_FOR_THE_FIRST)
        status = 1
    elif not is_first_process():
        time.sleep(SECONDS_FOR_THE_FIRST)
    if message is None or os.environ.get("GROUPWISE_TRACEBACK"):
        traceback.print_exception(error, file=sys.stderr)
        return 1

    head = "error: " if rank == "0" else f"error in process {rank}: "
    Console(stderr=True, soft_wrap=True).print(Text.assemble((head, "bold red"), visible(message)))
    return status


def _of_the_connection(error: BaseException) -> bool:
    """Returns whether `torch.distributed` raised the error because of a connection between processes."""
    frames = traceback.extract_tb(error.__traceback__)
    # Errors of the C++ store have no Python frame.
    return isinstance(error, RuntimeError) and (
        type(error).__module__ == "torch.distributed"
        or (bool(frames) and Path(frames[-1].filename).parts[-3:-1] == ("torch", "distributed"))
    )


def interrupted_status(number: int) -> int:
    """Returns the exit status of a run that was ended early and saved, by the shell's convention: 130 after Ctrl-C, 143
    after SIGTERM.

    Args:
        number: of the signal; 0 where another process received it.

    Example:
        >>> interrupted_status(2), interrupted_status(15), interrupted_status(0)
        (130, 143, 130)
    """
    return 128 + (number or signal.SIGINT)
