"""The device of a process, and how exactly it computes there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from groupwise.config import ConfigError
from groupwise.training.config import TrainConfig
from groupwise.training.distributed import World


def device_of_process(device: torch.device, world: World) -> torch.device:
    """Of several CUDA devices the one that this process computes on, which becomes PyTorch's current one; the CPU is
    everybody's.

    Args:
        device: the kind.
        world: this process among its peers.

    Returns:
        the device, with its number.

    Raises:
        ConfigError: more processes than devices were started on this machine.

    Example:
        >>> device_of_process(torch.device("cpu"), World(local_rank=1))
        device(type='cpu')
    """
    if device.type != "cuda":
        return device
    if world.local_rank >= (count := torch.cuda.device_count()):
        raise ConfigError(
            f"torchrun --nproc-per-node: process {world.local_rank + 1} of this machine has no GPU of its own, PyTorch"
            f" sees {count}; write {count} or fewer"
        )
    own = torch.device("cuda", world.local_rank)
    torch.cuda.set_device(own)
    return own


@contextmanager
def exactly(train: TrainConfig, device: torch.device) -> Iterator[None]:
    """Within the block CUDA computes fp32 in fp32, and with `train.deterministic` the same bits again. On a CPU both
    hold anyway, and nothing changes.

    By default cuDNN rounds the factors of a convolution to tf32, three digits: the log-prob of a density divides that
    error by a variance, and a policy scored again would no longer be the one that sampled. Who wants fewer digits
    writes `train.autocast`.

    Args:
        train: of the run.
        device: where it computes.
    """
    if device.type != "cuda":
        yield
        return
    # A module whose settings are properties of its class, which a type checker does not see.
    filling: Any = torch.utils.deterministic
    rounded, filled = torch.backends.cudnn.allow_tf32, filling.fill_uninitialized_memory
    before, only_warned = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.backends.cudnn.allow_tf32 = False
    if train.deterministic:
        # cuBLAS reads it when it is first used.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # An operation that has no deterministic kernel warns by name: to end the run would help nobody.
        torch.use_deterministic_algorithms(True, warn_only=True)
        filling.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = rounded
        torch.use_deterministic_algorithms(before, warn_only=only_warned)
        filling.fill_uninitialized_memory = filled
