"""Facts about this process, without torch and without a connection: its rank, its parent, its memory."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PARENT = "GROUPWISE_PARENT"
"""The environment variable that passes the id of a process to the processes that it starts."""

_NO_MEMORY = (
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "out of memory",
    "bad_alloc",
    "status_alloc_failed",
)
"""Parts of the messages with which allocators, the system and C++ refuse memory."""


class ProcessLeftError(RuntimeError):
    """Another process has left the run, and the connection broke with it; the message names it and gives the reason."""


def is_first_process() -> bool:
    """Returns whether this process prints and writes. It is the only process, or rank 0 under torchrun.

    Example:
        >>> is_first_process()
        True
    """
    return os.environ.get("RANK", "0") == "0"


def process_rank() -> int:
    """Returns the place of this process among those that torchrun started together; 0 without it.

    Example:
        >>> process_rank()
        0
    """
    return int(os.environ.get("RANK", "0"))


def num_processes() -> int:
    """Returns the number of processes that torchrun started together; 1 without it.

    Example:
        >>> num_processes()
        1
    """
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_launched() -> bool:
    """Returns whether a launcher such as torchrun started this process, even as the only one. A launcher states where
    the processes meet and which rank each has; notebooks and clusters set only some of that.

    Example:
        >>> is_launched()
        False
    """
    return all(name in os.environ for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"))


def can_spread() -> bool:
    """Returns whether weights can be spread: over several processes, or in a group of one that a launcher started.

    Example:
        >>> can_spread()
        False
    """
    return num_processes() > 1 or is_launched()


def check_launch() -> None:
    """Refuses an environment that states only in part how several processes train together, as a launcher's mistake or
    an earlier program leaves it: such a process would wait for others that never come, or take itself for another one.

    Raises:
        ValueError: a variable is missing or no number, or there is no process of this rank.

    Example:
        >>> check_launch()
    """
    remedy = (
        "unset WORLD_SIZE, RANK, LOCAL_RANK, MASTER_ADDR and MASTER_PORT to train in one process, or start several:"
        " torchrun --nproc-per-node 2 -m groupwise train ..."
    )
    # Kubernetes sets its own MASTER_PORT for a service of that name.
    together = os.environ.get("WORLD_SIZE", "1") != "1" or is_launched()
    for name in ("WORLD_SIZE", "RANK", *(("LOCAL_RANK", "MASTER_PORT") if together else ())):
        value = os.environ.get(name, "0")
        if not (value.isascii() and value.isdecimal()):
            raise ValueError(f"{name} = {value!r} in the environment: a launcher writes a whole number there; {remedy}")
    size, rank = num_processes(), process_rank()
    if rank >= size:
        said = f"WORLD_SIZE = {size}" if "WORLD_SIZE" in os.environ else "no WORLD_SIZE"
        raise ValueError(f"RANK = {rank} and {said} in the environment: there is no such process; {remedy}")
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if size > 1 and missing:
        raise ValueError(
            f"WORLD_SIZE = {size} in the environment: {size} processes train together, and {', '.join(missing)}, by"
            f" which they meet, is not set; {remedy}"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error reports that an allocation failed, on a device or on the CPU.

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
    """Asks the system to send this process SIGTERM (finish the step, save, stop) when its parent has ended.

    The parent is the process that `GROUPWISE_PARENT` names. Without that variable, and on other systems than Linux,
    nothing happens.

    Example:
        >>> end_with_parent()
    """
    # Child processes of this process do not inherit the variable.
    parent = os.environ.pop(PARENT, None)
    if parent is None:
        return
    import ctypes

    set_parent_death_signal = 1
    control = getattr(ctypes.CDLL(None), "prctl", None)
    if control is not None:
        control(set_parent_death_signal, signal.SIGTERM)
    # The parent may have ended before this line.
    if str(os.getppid()) != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def peak_memory_bytes() -> int | None:
    """Returns the largest number of bytes that this process has had in memory, or `None` on Windows.

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


@contextmanager
def without_collection() -> Iterator[None]:
    """Creates long-lived objects without Python's garbage collector, which would search all loaded libraries again and
    again while the number of objects grows: a quarter of the time in which a domain opens.

    Example:
        >>> with without_collection():
        ...     gc.isenabled()
        False
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
