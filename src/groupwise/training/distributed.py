"""Data parallelism: every process runs the same program, and sums join them.

A group lives on one process. Counts are summed before the micro-batches, gradients after them, so the number of
processes changes nothing but rounding. `torchrun` starts the processes. With a single process every sum is the
identity, nothing is imported and nothing is waited for.
"""

import importlib
import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import (
    PrefixStore,
    Store,
    _get_default_store,  # pyright: ignore[reportPrivateUsage]
)
from torch.distributed.rendezvous import rendezvous as stores_of

from groupwise import statistics
from groupwise.config import ConfigError
from groupwise.processes import ProcessLeftError, check_launch, is_launched, num_processes, process_rank
from groupwise.statistics import Statistic
from groupwise.training.rendezvous import JOIN_PATIENCE, PATIENCE, Rendezvous, fresh_store


@dataclass(frozen=True)
class World:
    """The place of this process among its peers.

    Args:
        rank: the process's number; process 0 is the only one that prints and writes.
        size: the number of processes.
        local_rank: the process's number on its machine, which chooses its device.
        rendezvous: where processes wait for each other before an exchange; None for a process without peers.
        leaves: whether the process leaves its group with the run: not one that the program itself has joined.

    Example:
        >>> World().sum(torch.ones(2)).tolist()
        [1.0, 1.0]
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    rendezvous: Rendezvous | None = None
    leaves: bool = True

    @property
    def first(self) -> bool:
        """True on the process that prints and writes."""
        return self.rank == 0

    @property
    def joined(self) -> bool:
        """True where it has a process group, even one of this process alone: then weights can be spread."""
        return self.size > 1 or (dist.is_available() and dist.is_initialized())

    def sum(self, tensor: Tensor) -> Tensor:
        """Returns the sum over processes, on all of them; does not change the argument.

        Args:
            tensor: this process's summand, of the same shape on all processes.
        """
        if self.size == 1:
            return tensor
        total = tensor.clone().contiguous()
        self._await_all(f"a sum of {total.numel()} {str(total.dtype).removeprefix('torch.')}")
        dist.all_reduce(total)
        return total

    def max(self, value: int) -> int:
        """Returns the largest of one integer a process."""
        return max(self.gather(value))

    def gather(self, value: Any) -> list[Any]:
        """Returns one plain value a process, in the order of ranks, on all of them.

        Args:
            value: this process's value; it can be pickled.
        """
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        self._await_all("values of all processes")
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Waits for every process."""
        if self.size > 1:
            self._await_all("all processes to come")

    @contextmanager
    def reporting_errors(self) -> Iterator[None]:
        """Informs the other processes of an error that leaves the block, so that none of them waits for this one for
        ever. Where another process has left before and the connection broke, the error names it and gives the reason.

        Raises:
            ProcessLeftError: another process has left the run.
        """
        try:
            yield
        except BaseException as error:
            if self.rendezvous is None:
                raise
            sentence = self.rendezvous.left()
            self.rendezvous.leave((str(error).strip().splitlines() or [type(error).__name__])[0][:500])
            if sentence and _of_the_connection(error):
                raise ProcessLeftError(sentence) from error
            raise

    def _await_all(self, exchange: str) -> None:
        if self.rendezvous is not None:
            self.rendezvous.wait_for_all(exchange)

    def share(self, count: int) -> range:
        """Returns this process's places of a global list. They are contiguous, and their numbers differ by at most one
        between processes.

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
        """Replaces every gradient by its sum over processes, in the order of the parameters.

        A parameter without a gradient on this process counts as zero; one without a gradient anywhere keeps none.
        """
        if self.size == 1:
            return
        has_gradient = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32)
        num_holders = self.sum(has_gradient.to(parameters[0].device)).tolist()
        for parameter, holders in zip(parameters, num_holders, strict=True):
            if holders:
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                # The exchange needs contiguous numbers, the optimiser a gradient that lies as its weight does.
                summed = gradient.contiguous()
                dist.all_reduce(summed)
                parameter.grad = gradient.copy_(summed)

    def sum_statistics(self, values: Mapping[str, Statistic]) -> dict[str, Statistic]:
        """Sums statistics over processes. A process may lack some of them (it had no members), which counts as zero.

        Args:
            values: this process's statistics, by name.

        Returns:
            the sums, the same on all processes.
        """
        if self.size == 1:
            return dict(values)
        return statistics.add(self.gather(statistics.on_cpu(values)))


def check_group() -> None:
    """Refuses a process group that the program itself has joined, and that cannot serve a run: under another number
    than the environment states, where every process would take itself for the first one, or without a backend for the
    CPU, on which counts are summed. Without a group, the environment itself is checked.

    Raises:
        ConfigError: rank or size differ, or the backend is NCCL alone.
        ValueError: as in `groupwise.processes.check_launch`.
    """
    if not (dist.is_available() and dist.is_initialized()):
        check_launch()
        return
    joined, said = (dist.get_rank(), dist.get_world_size()), (process_rank(), num_processes())
    if joined != said:
        raise ConfigError(
            f"the program joined a process group as rank {joined[0]} of {joined[1]}, and the environment says rank"
            f" {said[0]} of {said[1]}; set RANK = {joined[0]}, WORLD_SIZE = {joined[1]} and LOCAL_RANK before groupwise"
            " is called, as torchrun does"
        )
    if joined[1] > 1 and "cpu:" not in (backends := dist.get_backend_config()):
        raise ConfigError(
            f"the program joined a process group of {backends} alone, and counts are summed on the CPU; write"
            ' init_process_group("cpu:gloo,cuda:nccl")'
        )


def connect(device: torch.device, *, alone: bool = False) -> World:
    """Joins the processes that `torchrun` started; without `torchrun` this process has no peers. GPUs exchange tensors
    by NCCL, CPUs by gloo. A group that the program has joined by itself is taken as it is.

    Args:
        device: the device of this process.
        alone: whether a process that torchrun started alone makes a group as well, as weights in shards need.

    Returns:
        the place of this process among its peers.

    Raises:
        ConfigError: the program has joined a group that the environment does not describe.

    Example:
        >>> connect(torch.device("cpu")).size
        1
    """
    check_group()
    size = num_processes()
    if size == 1 and not (alone and is_launched()):
        return World(leaves=False)
    leaves = not dist.is_initialized()
    if leaves:
        # Functions of `torch.distributed.nn` take the process group as a default value when they are imported. Imported
        # later, they would keep the group and gloo's threads beyond `disconnect`.
        importlib.import_module("torch.distributed.nn")
        store, rank = _shared_store(), process_rank()
        store = fresh_store(store, rank, size)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=PrefixStore("group", store),
            rank=rank,
            world_size=size,
        )
    else:
        rank = dist.get_rank()
        store = fresh_store(PrefixStore("groupwise", _get_default_store()), rank, size, PATIENCE)
    rendezvous = Rendezvous(PrefixStore("rendezvous", store), rank, size)
    return World(rank, size, int(os.environ.get("LOCAL_RANK", "0")), rendezvous, leaves)


def _shared_store() -> Store:
    """Connects to the store through which the processes meet. The first process or the launcher holds the store.

    Raises:
        RuntimeError: it was not reached in time.
    """
    place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']} (MASTER_ADDR, MASTER_PORT)"
    process = f"process {process_rank()} of {num_processes()}"
    holds_it = process_rank() == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        store, _, _ = next(stores_of("env://", timeout=JOIN_PATIENCE))
    except dist.DistError as error:
        reason = str(error).strip().partition("\n")[0][:300]
        failed = "waited in vain for the other processes at" if holds_it else "does not reach"
        raise RuntimeError(f"{process} {failed} {place}, where processes meet: {reason}") from error
    return store


def disconnect(world: World) -> None:
    """Leaves the process group that `connect` joined, and ends the threads of gloo: a thread that is at work while
    Python ends aborts the process (exit code -6).

    Args:
        world: what `connect` returned.

    Example:
        >>> disconnect(connect(torch.device("cpu")))
    """
    if world.leaves and dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def _of_the_connection(error: BaseException) -> bool:
    """Returns whether an operation of `torch.distributed` raised the error."""
    files = [Path(frame.filename).parts for frame in traceback.extract_tb(error.__traceback__)]
    return isinstance(error, RuntimeError) and any("distributed" in parts and "torch" in parts for parts in files)
