"""The clock by which a stage and its controls are given equal time."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Final

_SCHEDULER: Final = Path("/proc/thread-self/schedstat")


def undelayed_seconds() -> float:
    """Reads a clock of wall time that stands still while the calling thread waits for a processor which others use.

    On a busy machine a run and its control then get equal amounts of work from equal seconds. Time in which the thread
    waits for a GPU, a server or a file counts as on every clock. Where the system does not say how long a thread
    waited (anywhere but on Linux), this is wall time.

    Returns:
        seconds since a moment that does not change while the thread lives; only differences mean something.

    Example:
        >>> start = undelayed_seconds()
        >>> undelayed_seconds() >= start
        True
    """
    # The delay is read first: a wait between the two readings then lengthens the time instead of turning it back.
    delay = _seconds_without_processor()
    return perf_counter() - delay


def _seconds_without_processor() -> float:
    """Returns how many seconds the calling thread has waited in a processor's queue since it began."""
    try:
        return int(_SCHEDULER.read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
