"""The processor and its instructions: on another processor libraries choose other code, which rounds otherwise."""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path

import torch


@lru_cache(maxsize=1)
def processor() -> str:
    """Returns the processor's name and which of its instructions torch uses.

    Returns:
        one line; where the system does not tell the name, the architecture in its place.

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
