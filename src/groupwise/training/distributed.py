"""Data parallelism: the same program in every process, joined by sums.

A group lives on one process. Counts are summed before the micro-batches, gradients after them, so the number of
processes changes nothing but rounding. Started by `torchrun`; alone, every sum is the identity and nothing is imported
or waited for.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor

from groupwise import statistics
from groupwise.statistics import Statistic

_BUCKET_BYTES = 64 * 2**20

PATIENCE = timedelta(hours=24)
"""How long a process waits for another. The first one evaluates alone while the others wait, which may take longer than
PyTorch's own half an hour.
"""


@final
@dataclass(frozen=True)
class World:
    """This process among its peers.

    Args:
        rank: its number; 0 is the first, which alone prints and writes.
        size: how many there are.
        local_rank: its number on this machine, which chooses its device.

    Example:
        >>> World().sum(torch.ones(2)).tolist()
        [1.0, 1.0]
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def first(self) -> bool:
        """Whether this process prints and writes."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over processes, on all of them; the argument is left as it is.

        Args:
            tensor: of one shape on all processes.
        """
        if self.size == 1:
            return tensor
        total = tensor.clone().contiguous()
        dist.all_reduce(total)
        return total

    def max(self, value: int) -> int:
        """The largest of one integer a process.

        Args:
            value: this process's.
        """
        return max(self.gather(value))

    def gather(self, value: Any) -> list[Any]:
        """One plain value a process, in order, on all of them.

        Args:
            value: this process's; it can be pickled.

        Returns:
            one value a process.
        """
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Waits for every process."""
        if self.size > 1:
            dist.barrier()

    def share(self, count: int) -> range:
        """The places of a global list that are this process's: contiguous, differing by at most one in number.

        Args:
            count: length of the list.

        Example:
            >>> [list(World(rank, 3).share(7)) for rank in range(3)]
            [[0, 1, 2], [3, 4], [5, 6]]
        """
        base, extra = divmod(count, self.size)
        start = self.rank * base + min(self.rank, extra)
        return range(start, start + base + (self.rank < extra))

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Replaces every gradient by its sum over processes, in the order of the parameters, a few large buckets at a
        time.

        A parameter without a gradient on this process counts as zero; one without a gradient anywhere keeps none.
        """
        if self.size == 1:
            return
        has = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32)
        used = self.sum(has.to(parameters[0].device)).tolist()
        gradients = [_gradient(parameter) for parameter, count in zip(parameters, used, strict=True) if count]
        for bucket in _buckets(gradients):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            dist.all_reduce(flat)
            for gradient, piece in zip(bucket, flat.split([gradient.numel() for gradient in bucket]), strict=True):
                gradient.copy_(piece.view_as(gradient))

    def sum_statistics(self, values: Mapping[str, Statistic]) -> dict[str, Statistic]:
        """Statistics summed over processes; a process may lack some of them (it had no members), which counts as zero.

        Args:
            values: this process's, by name.

        Returns:
            the sums, on all of them.
        """
        if self.size == 1:
            return dict(values)
        shapes: dict[str, tuple[str, int]] = {}
        for each in self.gather({name: (type(value).__name__, value.sums.numel()) for name, value in values.items()}):
            shapes |= each
        if not shapes:
            return {}
        whole = {}
        for name in sorted(shapes):
            kind, size = shapes[name]
            sums = values[name].sums.cpu() if name in values else torch.zeros(size, dtype=torch.float64)
            whole[name] = getattr(statistics, kind)(sums)
        return statistics.reduce_statistics(whole, self.sum)


def connect(device: torch.device) -> World:
    """Joins the processes that `torchrun` started; alone where it did not. NCCL between GPUs, gloo for everything on
    the CPU.

    Args:
        device: where this process computes.

    Returns:
        this process among its peers.

    Example:
        >>> connect(torch.device("cpu")).size
        1
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return World()
    if not dist.is_initialized():
        # Its functions take the group as their default value when they are imported, which would keep the group, and
        # gloo's threads, beyond `disconnect`.
        importlib.import_module("torch.distributed.nn")
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    return World(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0")))


def disconnect() -> None:
    """Leaves the group, if there is one, and ends gloo's threads: one that lets go of a tensor while Python ends aborts
    the process (exit code -6).

    Example:
        >>> disconnect()
    """
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def _gradient(parameter: torch.nn.Parameter) -> Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _buckets(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    buckets: list[list[Tensor]] = []
    filled = 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if not buckets or filled + size > _BUCKET_BYTES or buckets[-1][0].dtype != tensor.dtype:
            buckets.append([])
            filled = 0
        buckets[-1].append(tensor)
        filled += size
    return buckets
