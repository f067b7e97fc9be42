"""The memory that a pass takes and the memory that is available, in bytes."""

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from groupwise.config import ConfigError
from groupwise.processes import is_out_of_memory, peak_memory_bytes


def peak_bytes(run: Callable[[], None], device: torch.device) -> int:
    """Returns the most memory that tensors of `run` hold at one moment.

    On CUDA the allocator counts. Elsewhere every tensor's storage counts from its creation to its release, without the
    memory that a kernel borrows inside one operation.

    Args:
        device: the device whose memory is measured.

    Example:
        >>> peak_bytes(lambda: torch.zeros(1000).add(1).sum(), torch.device("cpu")) >= 8000
        True
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        bytes_before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - bytes_before
    with _LiveStorages() as live_storages:
        run()
    return live_storages.peak


def available_bytes(device: torch.device, limit_gib: float | None) -> int:
    """Returns the bytes that are left for a pass: of the limit, less what this process has allocated; without a limit,
    what is free on the CUDA device.

    Args:
        device: the device of the pass.
        limit_gib: the most memory that this process may take on the device, in GiB.
    """
    if device.type == "cuda":
        allocated = torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - allocated
        return free if limit_gib is None else min(free, int(limit_gib * 2**30) - allocated)
    assert limit_gib is not None, "preflight asks for a limit on a CPU"
    return int(limit_gib * 2**30) - _resident_bytes()


@contextmanager
def running_out(message: str) -> Iterator[None]:
    """Turns an error of the allocator within the block into one that says what to write; other errors stay.

    Raises:
        ConfigError: memory ran out.

    Example:
        >>> with running_out("memory ran out in an evaluation; write a smaller model"):
        ...     raise MemoryError
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: memory ran out in an evaluation; write a smaller model
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise ConfigError(message) from error


class _LiveStorages(TorchDispatchMode):
    """Counts the bytes of storages that operations inside the block created and that are still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.live_bytes = self.peak = 0
        self._keys: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        argument_storages = {
            leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
        }
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                # A view or an operation in place creates no storage.
                if storage._cdata not in argument_storages and storage._cdata not in self._keys:
                    self._add(storage)
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        self._keys.add(key)
        self.live_bytes += size
        self.peak = max(self.peak, self.live_bytes)

        def release() -> None:
            self._keys.discard(key)
            self.live_bytes -= size

        weakref.finalize(storage, release)


def _resident_bytes() -> int:
    """Returns the present memory of the process, or its peak on a system that does not report the present value."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return peak_memory_bytes() or 0
