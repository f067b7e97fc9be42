"""Weights that are in shards over several processes (FSDP2): their local parts, and the whole where it is needed.

Every process holds `1/n` of each weight, of its gradient and of its moments. A layer is whole on a process only while
it computes.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from groupwise.config import ConfigError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


PATIENCE = timedelta(minutes=30)
"""The time that a process waits for the part of a weight or of a gradient from another. Before a pass the processes
meet in the run's own group, which waits longer, so that a slow reward does not count.
"""

_INSIDE = "groupwise_inside"
_Owner = TypeVar("_Owner")


def process_mesh(device: torch.device, patience: timedelta = PATIENCE) -> DeviceMesh:
    """Returns the mesh of all processes of the run, in a group of its own.

    Args:
        device: the device of this process.
        patience: the time after which a collective operation that another process does not join is an error.
    """
    group: Any = dist.new_group(timeout=patience)
    return DeviceMesh.from_group(group, device.type)


def copy_without_weights(owner: _Owner, module: nn.Module) -> _Owner:
    """Returns a deep copy of an object in which the parameters of a module have shapes and no memory (the meta device);
    tied ones stay tied, buffers are copied.

    Args:
        owner: the module itself, or an object that refers to it.
        module: the module.

    Example:
        >>> copy_without_weights(module := nn.Linear(2, 2), module).weight.device.type
        'meta'
    """
    memo = {
        id(parameter): nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=parameter.requires_grad)
        for parameter in module.parameters()
    }
    return copy.deepcopy(owner, memo)


@torch.no_grad()
def move_weights(whole: nn.Module, sharded: nn.Module, mesh: DeviceMesh) -> None:
    """Gives a sharded module its part of the weights of a whole one, weight by weight, in its own dtype, and frees the
    whole ones: a process never holds more than the whole and its part. Processes do not wait for each other.

    Args:
        whole: the module, equal on all processes; it holds no weights afterwards. It may be on the CPU.
        sharded: what `copy_without_weights` made of it, sharded by `shard_module`.
        mesh: the mesh of the shards.
    """
    device = torch.device(mesh.device_type)
    places: dict[int, list[str]] = {}
    for name, parameter in whole.named_parameters(remove_duplicate=False):
        places.setdefault(id(parameter), []).append(name)
    sharded._apply(lambda tensor: torch.empty_like(tensor, device=device) if tensor.is_meta else tensor.to(device))
    # A tied weight now has a separate tensor at each place. When the tie is applied again, FSDP manages the tensor that
    # is left.
    for first, *others in places.values():
        for other in others:
            module_name, _, parameter_name = other.rpartition(".")
            setattr(sharded.get_submodule(module_name), parameter_name, sharded.get_parameter(first))
    sharded._apply(lambda tensor: tensor)
    for parameter, shard in zip(whole.parameters(), sharded.parameters(), strict=True):
        local_part(shard).copy_(part_of(parameter, like=shard))
        parameter.data = parameter.data.new_empty(0, dtype=shard.dtype)


def shard_module(module: nn.Module, layers: Iterable[nn.Module], mesh: DeviceMesh) -> None:
    """Spreads the parameters of a module over the processes of a mesh, in place: layer by layer, and the remaining ones
    with the module itself. Gradients are summed over processes, not averaged.

    Args:
        module: the module, equal on all processes or without weights; `inside` runs its passes from then on.
        layers: disjoint parts of the module that are gathered one after another. One that shares a weight with
            another part is spread with the module itself.
        mesh: the mesh that `process_mesh` returned.

    Raises:
        ConfigError: trained weights of several dtypes are to be spread together.
    """
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    places = Counter(id(parameter) for _, parameter in module.named_parameters(remove_duplicate=False))
    for layer in layers:
        inner = Counter(id(parameter) for _, parameter in layer.named_parameters(remove_duplicate=False))
        if all(places[key] == count for key, count in inner.items()):
            fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    _check_dtypes(module)
    for unit in _units(module):
        unit.set_gradient_divide_factor(1.0)
        # For fp32, FSDP would multiply inside the sum by default, which gloo cannot do.
        unit.set_force_sum_reduction_for_comms(True)
    setattr(module, _INSIDE, lambda compute: compute())
    register_fsdp_forward_method(module, _INSIDE)


def _check_dtypes(module: nn.Module) -> None:
    """Refuses units whose trained weights differ in dtype, which FSDP cannot sum together."""
    units = set(_units(module))

    def trained(part: nn.Module) -> Iterator[nn.Parameter]:
        yield from (parameter for parameter in part.parameters(recurse=False) if parameter.requires_grad)
        for child in part.children():
            if child not in units:
                yield from trained(child)

    for unit in units:
        dtypes = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in trained(unit)})
        if len(dtypes) > 1:
            raise ConfigError(
                f"train.sharding = 'full': {type(unit).__name__.removeprefix('FSDP')} trains weights of"
                f" {' and '.join(dtypes)}, and weights that are spread together have one dtype; write"
                " domain.model.dtype = 'float32' (with train.autocast = 'bfloat16' on a GPU), or train an adapter"
                " (domain.model.lora)"
            )


def inside(module: nn.Module, compute: Callable[[], Any]) -> Any:
    """Returns what `compute` returns, called within the forward pass of a sharded module: the weights that belong to no
    layer are plain whole tensors there, tied ones too. Every process must call this function.
    """
    return getattr(module, _INSIDE)(compute)


def reshard(module: nn.Module) -> None:
    """Frees the whole weights that a pass without gradient leaves behind, so that `parameters()` are shards again."""
    for unit in _units(module):
        unit.reshard()


def local_part(tensor: Tensor) -> Tensor:
    """Returns this process's part of a sharded tensor, which shares its memory; a plain tensor is its own part.

    Example:
        >>> local_part(torch.ones(2)).tolist()
        [1.0, 1.0]
    """
    if not is_sharded(tensor):
        return tensor
    with torch.no_grad():
        return tensor.to_local()


def whole_tensor(tensor: Tensor) -> Tensor:
    """Returns the whole of a sharded tensor; every process must call this function. A plain tensor is whole already.

    Example:
        >>> whole_tensor(torch.ones(2)).tolist()
        [1.0, 1.0]
    """
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def part_of(whole: Tensor, like: Tensor) -> Tensor:
    """Returns this process's part of a whole tensor, cut in the same way as another tensor; the whole if that one is
    plain.

    Args:
        whole: a tensor of the global shape of `like`.
        like: a tensor, sharded along its first axis or plain.

    Example:
        >>> part_of(torch.ones(2), like=torch.zeros(2)).tolist()
        [1.0, 1.0]
    """
    if not is_sharded(like):
        return whole
    (placement,) = like.placements
    assert placement.is_shard(0), "FSDP2 cuts along the first axis"
    parts = whole.chunk(like.device_mesh.size(), 0)
    rank = like.device_mesh.get_local_rank()
    return parts[rank] if rank < len(parts) else whole[:0]


def sum_over_shards(value: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """Returns the sum over processes of a number that was computed from the local parts of tensors; the number itself
    where the tensors are plain.

    Example:
        >>> sum_over_shards(torch.tensor(2.0), [torch.ones(1)]).item()
        2.0
    """
    for tensor in tensors:
        if is_sharded(tensor):
            total = value.clone()
            dist.all_reduce(total, group=tensor.device_mesh.get_group())
            return total
    return value


@contextmanager
def gathered(sharded: nn.Module, whole: nn.Module, device: torch.device, *, here: bool = True) -> Iterator[None]:
    """Gives a plain module the weights of a sharded one within the block; after it the plain one holds none. Every
    process must enter the block, and nothing that computes with the plain module waits for another process.

    Args:
        sharded: the module that is trained.
        whole: a plain module of the same parameters and buffers.
        device: where the whole weights are. On the CPU the device of the shards holds one whole weight at a time.
        here: whether this process needs them; otherwise it gives its shards to the others, and its plain module stays
            empty.
    """
    # The processes may arrive at different times, and this group waits longer than the group of the shards.
    dist.barrier()
    reshard(sharded)
    try:
        whole.to(device)
        for parameter, shard in zip(whole.parameters(), sharded.parameters(), strict=True):
            weight = whole_tensor(shard.detach())
            # Nothing else of the plain module refers to the old storage, which `release` has emptied.
            parameter.data = weight.to(device) if here else parameter.data
            del weight
        with torch.no_grad():
            for buffer, trained in zip(whole.buffers(), sharded.buffers(), strict=True):
                buffer.copy_(trained)
        yield
    finally:
        release(whole)


def release(whole: nn.Module) -> None:
    """Takes the weights away from a plain module; a pass through it fails until they are gathered."""
    for parameter in whole.parameters():
        parameter.data = parameter.data.new_empty(0)


def _units(module: nn.Module) -> list[Any]:
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")
    return [] if fsdp is None else [unit for unit in module.modules() if isinstance(unit, fsdp.FSDPModule)]


def is_sharded(value: Any) -> TypeGuard[DTensor]:
    """Returns whether a value is a sharded tensor, without importing the class of such tensors: before it is imported,
    none exists.
    """
    tensor = sys.modules.get("torch.distributed.tensor")
    return tensor is not None and isinstance(value, tensor.DTensor)


# Sharded tensors in files: PyTorch's distributed checkpoints (DCP) in the safetensors format. Every process writes
# its shards, and any number of processes read the parts that they need.


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
    except CheckpointException as error:  # this class does not extend `Exception`, so `except Exception` would miss it
        raise next(iter(error.failures.values()))[0] from error
