"""What a process knows of itself before any connection and without torch: which of several it is, whose, and whether
its memory ran out.
"""

from __future__ import annotations

import os
import signal
import sys

PARENT = "GROUPWISE_PARENT"
"""The environment variable in which a process that starts others writes its id for them."""

_NO_MEMORY = (
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "out of memory",
    "bad_alloc",
    "status_alloc_failed",
)
"""What allocators, the system and C++ say."""


def is_first_process() -> bool:
    """Whether this process prints and writes: alone, or rank 0 under torchrun.

    Example:
        >>> is_first_process()
        True
    """
    return os.environ.get("RANK", "0") == "0"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on a device or on the CPU.

    Args:
        error: what was caught.

    Example:
        >>> (
        ...     is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory")),
        ...     is_out_of_memory(RuntimeError("sizes differ")),
        ... )
        (True, False)
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError | OSError) and any(text in str(error).lower() for text in _NO_MEMORY)


def end_with_parent() -> None:
    """Asks this process to end (SIGTERM: finish the step, save, stop) when the one that started it is gone, however it
    went.

    Only where `GROUPWISE_PARENT` names that process, and only on Linux; elsewhere nothing happens.

    Example:
        >>> end_with_parent()
    """
    # Not for what this process starts in turn.
    parent = os.environ.pop(PARENT, None)
    if parent is None:
        return
    import ctypes

    set_parent_death_signal = 1
    control = getattr(ctypes.CDLL(None), "prctl", None)
    if control is not None:
        control(set_parent_death_signal, signal.SIGTERM)
    # It may have gone before this line.
    if str(os.getppid()) != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def peak_memory_bytes() -> int | None:
    """Give the most that this process ever held in memory; None where the system does not say (Windows).

    Example:
        >>> peak_memory_bytes() > 1_000_000
        True
    """
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
