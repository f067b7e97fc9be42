"""What a measurement ran on, in one line."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe() -> str:
    """Processor, cores this process may use, load before the measurement, Python, torch."""
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    cores = len(os.sched_getaffinity(0))
    return (
        f"{name}, {cores} cores, load {os.getloadavg()[0]:.1f} before; Python {platform.python_version()}, torch"
        f" {torch.__version__}"
    )
