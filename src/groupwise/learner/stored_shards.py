"""Sharded tensors in files: PyTorch's distributed checkpoints (DCP) in the safetensors format. Every process writes its
shards, and any number of processes read the parts that they need.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch
import torch.distributed as dist
from torch import Tensor

from groupwise.learner.shards import local_part, part_of

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


@final
@dataclass(frozen=True)
class StoredTensor:
    """A tensor that several processes have written in shards; nothing is read before `fill` or `read_whole`.

    Args:
        folder: the folder of the shards.
        name: the tensor's name in the files.
        shape: the shape of the whole tensor.
        dtype: its dtype.
    """

    folder: Path
    name: str
    shape: torch.Size
    dtype: torch.dtype


def write_shards(folder: Path, tensors: Mapping[str, DTensor]) -> list[str]:
    """Writes this process's shards of every tensor into a folder that the processes share; every process must call this
    function with the same names.

    Args:
        folder: path of the folder, which need not exist.
        tensors: name -> sharded tensor.

    Returns:
        the names of the files that this process wrote; none where it holds no element.

    Raises:
        OSError: a process could not write; it is raised on every process, with the number of the one that failed.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        save({name: tensor.detach() for name, tensor in tensors.items()}, storage_writer=writer)
    except CheckpointException as error:
        rank, (failure, _) = next(iter(error.failures.items()))
        number = failure.errno if isinstance(failure, OSError) else None
        raise OSError(number, f"process {rank}: {failure}") from error
    return sorted(path.name for path in folder.glob(f"shard-{dist.get_rank() + 1:05d}-*"))


@torch.no_grad()
def fill(pairs: Iterable[tuple[Tensor, Tensor | StoredTensor]]) -> None:
    """Copies whole tensors, in memory or stored, into live ones of the same shapes, in place. Of a sharded live tensor
    only this process's part is copied, and read. No process waits for another.

    Args:
        pairs: live tensor and its new content.

    Raises:
        OSError, ValueError: a file of stored tensors cannot be read, or holds another shape.

    Example:
        >>> live = torch.zeros(2)
        >>> fill([(live, torch.ones(2))])
        >>> live.tolist()
        [1.0, 1.0]
    """
    stored: dict[Path, dict[str, Tensor]] = {}
    for live, content in pairs:
        if isinstance(content, StoredTensor):
            stored.setdefault(content.folder, {})[content.name] = live.detach()
        else:
            local_part(live).copy_(part_of(content, like=live))
    for folder, live_tensors in stored.items():
        _read(folder, live_tensors)


def read_whole(tree: Any) -> Any:
    """Returns a nest of dictionaries, lists and tuples with every stored tensor read, whole, to the CPU's memory.

    Example:
        >>> read_whole({"a": (1, [None])})
        {'a': (1, [None])}
    """
    stored: list[tuple[Tensor, StoredTensor]] = []

    def replaced(value: Any) -> Any:
        if isinstance(value, StoredTensor):
            stored.append((torch.empty(value.shape, dtype=value.dtype), value))
            return stored[-1][0]
        if isinstance(value, dict):
            return {key: replaced(child) for key, child in value.items()}
        return type(value)(map(replaced, value)) if isinstance(value, list | tuple) else value

    whole = replaced(tree)
    fill(stored)
    return whole


def _read(folder: Path, live_tensors: dict[str, Tensor]) -> None:
    """Reads the stored tensors of a folder into live ones of the same names."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # a single process may read, too
            load(dict(live_tensors), storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    except CheckpointException as error:  # no `Exception`, so that nobody would catch it
        raise next(iter(error.failures.values()))[0] from error
