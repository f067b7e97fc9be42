"""The limits of a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Limits:
    """The limits of a program, for the sum of its processes where no other meaning is stated.

    Args:
        cpu_seconds: processor time; for a single process rounded up to whole seconds. None for no limit.
        memory_mb: memory, in megabytes; also the address space of each process.
        wall_seconds: time on the clock. None for no limit.
        output_mb: size of each file it writes, its output included.
        disk_mb: size of everything it writes: its folder, temporary files, shared memory.
        network: whether it may use the network.
        num_processes: processes and threads at one time.
    """

    cpu_seconds: float | None = 5.0
    memory_mb: int = 1024
    wall_seconds: float | None = 10.0
    output_mb: int = 8
    disk_mb: int = 64
    network: bool = False
    num_processes: int = 64
