"""How much memory a pass takes and how much there is, in bytes."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from groupwise.processes import peak_memory_bytes


def peak_bytes(run: Callable[[], None], device: torch.device) -> int:
    """The most memory that tensors made by `run` hold at one moment.

    On CUDA it is the allocator's own count. Elsewhere every tensor's storage is counted from its birth to its death,
    which leaves out what a kernel borrows inside one operation.

    Args:
        run: what is measured.
        device: whose memory.

    Example:
        >>> peak_bytes(lambda: torch.zeros(1000).add(1).sum(), torch.device("cpu")) >= 8000
        True
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with _Living() as living:
        run()
    return living.peak


def available_bytes(device: torch.device, limit_gib: float | None) -> int:
    """What is left for a pass: of the stated limit, less what this process holds by now; without a limit, what is free
    on the CUDA device.

    Args:
        device: where the pass runs.
        limit_gib: all that this process may take on the device, in GiB.
    """
    if device.type == "cuda":
        held = torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - held
        return free if limit_gib is None else min(free, int(limit_gib * 2**30) - held)
    assert limit_gib is not None, "checked before the first step"
    return int(limit_gib * 2**30) - _resident_bytes()


@final
class _Living(TorchDispatchMode):
    """Bytes of the storages that operations made inside the block and that still live."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {
            leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
        }
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                # A view, or an operation in place, makes nothing new.
                if storage._cdata not in given and storage._cdata not in self._known:
                    self._born(storage)
        return result

    def _born(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)

        def died() -> None:
            self._known.discard(key)
            self.now -= size

        weakref.finalize(storage, died)


def _resident_bytes() -> int:
    """What the process holds in memory now; where the system does not say, the most it ever held."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return peak_memory_bytes() or 0
