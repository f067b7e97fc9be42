"""The limits of a program."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

_MAX_OPEN = 512


@final
@dataclass(frozen=True)
class Limits:
    """The limits of a program, for the sum of its processes where no other meaning is stated.

    Args:
        cpu_seconds: processor time; for a single process rounded up to whole seconds. None for no limit.
        memory_mb: memory, in megabytes; also the address space of each process. None for no limit.
        wall_seconds: time on the clock. None for no limit.
        output_mb: size of each file it writes, its output included.
        disk_mb: size of everything it writes: its folder, temporary files, shared memory.
        network: whether it may use the network.
        num_processes: processes and threads at one time.
    """

    cpu_seconds: float | None = 5.0
    memory_mb: int | None = 1024
    wall_seconds: float | None = 10.0
    output_mb: int = 8
    disk_mb: int = 64
    network: bool = False
    num_processes: int = 64

    def of_each_process(self, num_tasks: int) -> dict[str, int]:
        """Returns the limits that hold for each process, as names of the module `resource` and numbers.

        Args:
            num_tasks: how many processes and threads its user may have.

        Example:
            >>> Limits(memory_mb=None, cpu_seconds=None).of_each_process(64)
            {'CORE': 0, 'NOFILE': 512, 'FSIZE': 8388608, 'NPROC': 64}
        """
        limits = {"CORE": 0, "NOFILE": _MAX_OPEN, "FSIZE": self.output_mb * 2**20, "NPROC": num_tasks}
        if self.memory_mb is not None:
            limits["AS"] = self.memory_mb * 2**20
        if self.cpu_seconds is not None:
            limits["CPU"] = math.ceil(self.cpu_seconds)
        return limits
