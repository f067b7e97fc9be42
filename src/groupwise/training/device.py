"""The device of a process, and the precision of its arithmetic."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from groupwise.config import ConfigError
from groupwise.training.config import TrainConfig
from groupwise.training.distributed import World


def device_of_process(device: torch.device, world: World) -> torch.device:
    """Chooses the CUDA device of this process among those of the machine and makes it PyTorch's current device. On a
    CPU every process shares the one device.

    Args:
        device: the kind of device, without a number.

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
    if world.local_rank >= (num_devices := torch.cuda.device_count()):
        raise ConfigError(
            f"torchrun --nproc-per-node: process {world.local_rank + 1} of this machine has no GPU of its own, PyTorch"
            f" sees {num_devices}; write {num_devices} or fewer"
        )
    process_device = torch.device("cuda", world.local_rank)
    torch.cuda.set_device(process_device)
    return process_device


@contextmanager
def exact_arithmetic(train: TrainConfig, device: torch.device) -> Iterator[None]:
    """Makes CUDA compute fp32 in fp32 within the block, and with `train.deterministic` repeat the same bits. On a CPU
    both hold without this block.

    By default cuDNN rounds the factors of a convolution to tf32, three digits: the log-prob of a density divides that
    error by a variance, so that a policy that is scored again would no longer equal the policy that sampled.
    `train.autocast` is the setting for fewer digits.
    """
    if device.type != "cuda":
        yield
        return
    # The settings of this module are properties of its class, which a type checker does not see.
    deterministic_settings: Any = torch.utils.deterministic
    tf32_before, fill_before = torch.backends.cudnn.allow_tf32, deterministic_settings.fill_uninitialized_memory
    deterministic_before, warn_only_before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.backends.cudnn.allow_tf32 = False
    if train.deterministic:
        # cuBLAS reads the variable when a process first uses it.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # An operation without a deterministic kernel gives a warning with its name; the run continues.
        torch.use_deterministic_algorithms(True, warn_only=True)
        deterministic_settings.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = tf32_before
        torch.use_deterministic_algorithms(deterministic_before, warn_only=warn_only_before)
        deterministic_settings.fill_uninitialized_memory = fill_before
