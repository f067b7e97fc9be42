"""The name of the processor and of its instructions, by which libraries choose their code and so its rounding."""

import os
import platform
from functools import lru_cache
from pathlib import Path

import torch


def num_processors() -> int:
    """Returns the number of processors that this process may use, where the system tells; else that of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=1)
def processor() -> str:
    """Returns the processor's name and the instructions that torch uses, in one line.

    Where the system does not report the processor's name, the architecture is in its place.

    Example:
        >>> processor().endswith(torch.backends.cpu.get_cpu_capability())
        True
    """
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"
