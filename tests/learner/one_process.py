"""A group of one process, in which tensors are sharded as in a larger group."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from groupwise.learner.shards import process_mesh


@contextmanager
def sharding() -> Iterator[Callable[[Tensor], Any]]:
    """Yields a function that shards a tensor along its first axis."""
    from torch.distributed.tensor import Shard, distribute_tensor

    # As `groupwise.training.distributed.connect` does before there is a group: it would be kept beyond its end.
    importlib.import_module("torch.distributed.nn")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = process_mesh(torch.device("cpu"))
        yield lambda tensor: distribute_tensor(tensor, mesh, [Shard(0)])
    finally:
        dist.destroy_process_group()
