"""Clocks and memory of one process, read the same way on every side of a benchmark. Linux only."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def memory_bytes(field: str = "VmRSS") -> int:
    """Resident memory of this process now (`VmRSS`), or its highest since the last reset (`VmHWM`)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/self/status has no field {field}")


def reset_peak() -> int:
    """Let the peak start again from what is resident now, and return that."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory_bytes("VmRSS")


def differences(values: list[float]) -> list[float]:
    """What lies between one value and the next."""
    return [after - before for before, after in itertools.pairwise(values)]


class Clock:
    """Seconds by part, one list entry a step."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name].append(time.perf_counter() - start)


WALL: list[float] = []
"""When each step of a run ended."""
CPU: list[float] = []
"""What the process had used by then, on all of its threads: the same on a busy machine, where wall time is not."""


def tick(*_: object) -> None:
    """Notes the end of a step; a callback for `train.callbacks`."""
    WALL.append(time.perf_counter())
    CPU.append(time.process_time())
