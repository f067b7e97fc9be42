"""A command of `groupwise` as a process of its own, for the benchmarks that measure whole runs."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

GROUPWISE = ("-c", "from groupwise.cli import main; main()")
"""Arguments of Python that stand for the program `groupwise`."""


def environment(cache: Path) -> dict[str, str]:
    """Returns the variables that a measured command sees: one thread, wide output, a cache of its own.

    Args:
        cache: folder of the stages that runs share.
    """
    return {
        **os.environ,
        "GROUPWISE_CACHE": str(cache.resolve()),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
        "TOKENIZERS_PARALLELISM": "false",
    }


def call(
    words: Sequence[str], variables: dict[str, str], seconds: float, *, python: str = sys.executable
) -> tuple[int | None, str]:
    """Runs Python with these arguments; nothing of the command outlives this call.

    Args:
        words: arguments of Python, such as `[*GROUPWISE, "train", "language"]`.
        variables: the environment.
        seconds: deadline, wall time.
        python: path of the interpreter.

    Returns:
        the exit status, none past the deadline, and everything that was printed.
    """
    process = subprocess.Popen(
        [python, *words],
        env=variables,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def failure(status: int | None, output: str, seconds: float) -> str:
    """Returns why a command failed, in a line; nothing where it ended well.

    Args:
        status: what `call` returned.
        output: likewise.
        seconds: its deadline.
    """
    if status == 0:
        return ""
    return f"did not end within {seconds:g} s" if status is None else (output.strip().splitlines() or [""])[-1][:300]


def cpu_seconds() -> float:
    """Returns the processor time of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
