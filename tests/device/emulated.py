"""A CUDA device that is none: real numbers computed on the CPU, and the errors a GPU would give where tensors of two
devices meet.

Inside `emulated_cuda()` PyTorch says that there is one CUDA device. What is made there or moved there is computed on
the CPU, by the same kernels, and remembered as lying there, storage by storage. Every operation, of a backward pass
too, is then held to CUDA's rules: its tensors lie on one device, but for

- the scalars (tensors without axes) that arithmetic takes from the CPU,
- the indices that indexing takes from the CPU,
- copies from one device to the other;

a tensor on the device is no numpy array, and a generator of the CPU draws nothing there. So a `torch.zeros(n)` without
a device that meets what the model computed is an error in a test of a real run, without a GPU. What cannot be shown:
kernels that CUDA lacks or rounds otherwise, its memory, its order of sums.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CUDA = torch.device("cuda", 0)

_FACTORIES = (
    *(
        "arange",
        "as_tensor",
        "asarray",
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "eye",
        "full",
        "full_like",
        "linspace",
        "logspace",
    ),
    *(
        "ones",
        "ones_like",
        "rand",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "randperm",
        "scalar_tensor",
        "tensor",
    ),
    *("tril_indices", "triu_indices", "zeros", "zeros_like"),
)
_NEW = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros")
_COPIES = {"aten.copy_", "aten._copy_from", "aten.set_", "aten.resize_"}
_INDEXING = {"aten.index", "aten.index_put", "aten.index_put_", "aten._index_put_impl_", "aten._unsafe_index"}
_TAKES_SCALARS = {f"aten.{name}{end}" for name in ("masked_fill", "fill", "index_put") for end in ("", "_")}
_TAKES_NONE = {"aten.lerp", "aten.lerp_"}


class DeviceError(RuntimeError):
    """What a GPU would refuse."""


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """What holds the tensor's numbers, below the wrappers of `torch.func`."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor.untyped_storage() if tensor.layout == torch.strided else None


class _There:
    """Which storages lie on the device, and which could lie anywhere: those that PyTorch's own operations make inside
    them, as `one_hot` does.
    """

    def __init__(self) -> None:
        self.keys: set[int] = set()
        self.anywhere: set[int] = set()
        self.asked_for = False
        """Whether Python code makes a tensor right now, which says where."""

    def __contains__(self, tensor: torch.Tensor) -> bool:
        storage = _storage(tensor)
        return storage is not None and storage._cdata in self.keys

    def is_undecided(self, tensor: torch.Tensor) -> bool:
        storage = _storage(tensor)
        return storage is not None and storage._cdata in self.anywhere

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._note(tensor, self.keys, self.anywhere)

    def leave_open(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._note(tensor, self.anywhere, self.keys)

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = _storage(tensor)
        assert storage is not None
        self.keys.discard(storage._cdata)
        self.anywhere.discard(storage._cdata)
        return tensor

    def _note(self, tensor: torch.Tensor, where: set[int], instead: set[int]) -> torch.Tensor:
        storage = _storage(tensor)
        if storage is not None and (key := storage._cdata) not in where:
            where.add(key)
            instead.discard(key)
            weakref.finalize(storage, where.discard, key)
        return tensor


class _Checked(TorchDispatchMode):
    """Holds every operation to the rules, and puts its results where its arguments lie."""

    def __init__(self, there: _There) -> None:
        super().__init__()
        self.there = there

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        given = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        on_device = [tensor in self.there for tensor in given]
        for tensor in given:
            if any(on_device) != self.there.is_undecided(tensor):
                continue
            # What meets others lies where they lie.
            if any(on_device):
                self.there.put(tensor)
            elif any(not self.there.is_undecided(other) and other.dim() for other in given):
                self.there.take(tensor)
        on_device = [tensor in self.there for tensor in given]
        if any(on_device):
            self._check(func, args, given, on_device, leaves)
        old = {storage._cdata for tensor in given if (storage := _storage(tensor)) is not None}
        result = func(*args, **kwargs)
        new = [
            leaf
            for leaf in tree_leaves(result)
            if isinstance(leaf, torch.Tensor) and (storage := _storage(leaf)) is not None and storage._cdata not in old
        ]
        for leaf in new:
            if any(on_device):
                self.there.put(leaf)
            elif not self.there.asked_for and all(self.there.is_undecided(tensor) for tensor in given):
                self.there.leave_open(leaf)
        return result

    def _check(self, func: Any, args: Any, given: list[torch.Tensor], on_device: list[bool], leaves: list[Any]) -> None:
        name = str(func.overloadpacket)
        if any(isinstance(leaf, torch.Generator) and leaf.device.type == "cpu" for leaf in leaves):
            raise DeviceError(f"{name}: Expected a 'cuda' device type for generator but found 'cpu'")
        strangers = [tensor for tensor, there in zip(given, on_device, strict=True) if not there]
        if not strangers or name in _COPIES:
            return
        written = name.endswith("_") and strangers[0] is given[0]
        if name in _INDEXING and not written:
            indices = [leaf for leaf in tree_leaves(args[1]) if isinstance(leaf, torch.Tensor)]
            strangers = [tensor for tensor in strangers if not any(tensor is index for index in indices)]
        if (torch.Tag.pointwise in func.tags and name not in _TAKES_NONE) or name in _TAKES_SCALARS:
            strangers = [tensor for tensor in strangers if written or tensor.dim()]
        if strangers:
            shapes = [
                (list(tensor.shape), "cuda" if there else "cpu") for tensor, there in zip(given, on_device, strict=True)
            ]
            raise DeviceError(
                f"{name}: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and"
                f" cpu! {shapes}"
            )


def _is_cuda(device: Any) -> bool:
    return device is not None and (isinstance(device, int) or torch.device(device).type == "cuda")


def _on_cpu(args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any], Any]:
    """The arguments of `Tensor.to` with the CPU for the device, and the device they named."""
    named: list[Any] = []

    def plain(value: Any) -> Any:
        # A device is an index too, and no dtype or flag is.
        if isinstance(value, torch.device | str) or (isinstance(value, int) and not isinstance(value, bool)):
            named.append(torch.device(value))
            return torch.device("cpu")
        return value

    arguments, keywords = (
        [plain(value) for value in args],
        {name: plain(value) for name, value in kwargs.items() if name != "non_blocking"},
    )
    return arguments, keywords, named[0] if named else None


class _Move(torch.autograd.Function):
    """A copy on the other device; its gradient comes back."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, there: _There, to_device: bool) -> torch.Tensor:
        ctx.there, ctx.to_device = there, to_device
        return (there.put if to_device else there.take)(tensor.clone())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (ctx.there.take if ctx.to_device else ctx.there.put)(gradients[0].clone()), None, None


def _patches(there: _There) -> Iterator[Any]:
    plain_to, plain_numpy, plain_array = torch.Tensor.to, torch.Tensor.numpy, torch.Tensor.__array__
    plain_device = torch.Tensor.device

    def device(self: torch.Tensor) -> torch.device:
        return CUDA if self in there else plain_device.__get__(self)

    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if args and isinstance(args[0], torch.Tensor):
            args = (args[0].device, args[0].dtype, *args[1:])
        arguments, keywords, wanted = _on_cpu(args, kwargs)
        moved = self
        if wanted is not None and _is_cuda(wanted) != (self in there):
            moved = _Move.apply(self, there, _is_cuda(wanted))
        return plain_to(moved, *arguments, **keywords)

    def refused(plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def call(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if self in there:
                raise TypeError(
                    "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host"
                    " memory first."
                )
            return plain(self, *args, **kwargs)

        return call

    def factory(plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def call(*args: Any, **kwargs: Any) -> Any:
            wanted = kwargs.get("device")
            there.asked_for, before = True, there.asked_for
            try:
                return make(wanted, *args, **kwargs)
            finally:
                there.asked_for = before

        def make(wanted: Any, *args: Any, **kwargs: Any) -> Any:
            if wanted is None:
                result = plain(*args, **kwargs)
                # These two copy a Python value beside the tensor.
                return there.put(result) if plain.__name__ == "new_tensor" and args[0] in there else result
            if _is_cuda(wanted) and isinstance(kwargs.get("generator"), torch.Generator):
                raise DeviceError(f"{plain.__name__}: Expected a 'cuda' device type for generator but found 'cpu'")
            if not any(isinstance(value, torch.Tensor) for value in args):
                result = plain(*args, **{**kwargs, "device": "cpu"})
                return there.put(result) if _is_cuda(wanted) else result
            result = plain(*args, **{name: value for name, value in kwargs.items() if name != "device"})
            return result.to(wanted) if _is_cuda(wanted) != (result in there) else result

        return call

    yield patch.object(torch.Tensor, "device", property(device))
    yield patch.object(torch.Tensor, "is_cuda", property(lambda self: self in there))
    yield patch.object(torch.Tensor, "is_cpu", property(lambda self: self not in there))
    yield patch.object(torch.Tensor, "to", to)
    yield patch.object(torch.Tensor, "cpu", lambda self, *_, **__: to(self, "cpu"))
    yield patch.object(torch.Tensor, "cuda", lambda self, *_, **__: to(self, CUDA))
    yield patch.object(torch.Tensor, "numpy", refused(plain_numpy))
    yield patch.object(torch.Tensor, "__array__", refused(plain_array))
    yield from (patch.object(torch, name, factory(getattr(torch, name))) for name in _FACTORIES)
    yield from (patch.object(torch.Tensor, name, factory(getattr(torch.Tensor, name))) for name in _NEW)


def _machine() -> Iterator[Any]:
    """What PyTorch says of the machine."""
    states = {0: torch.get_rng_state()}

    def set_state(state: torch.Tensor, device: Any = 0) -> None:
        states[0] = state.clone()

    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "memory_allocated": lambda device=None: 0,
        "memory_reserved": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "reset_peak_memory_stats": lambda device=None: None,
        "mem_get_info": lambda device=None: (2**34, 2**35),
        "get_device_name": lambda device=None: "an emulated device",
        "get_device_capability": lambda device=None: (9, 0),
        "get_rng_state": lambda device=0: states[0].clone(),
        "get_rng_state_all": lambda: [states[0].clone()],
        "set_rng_state": set_state,
        "manual_seed_all": lambda seed: None,
        "manual_seed": lambda seed: None,
    }
    yield from (patch.object(torch.cuda, name, answer) for name, answer in answers.items())
    yield patch.object(torch.accelerator, "is_available", lambda: True)
    yield patch.object(
        torch.accelerator, "current_stream", lambda device=None: SimpleNamespace(is_capturing=lambda: False)
    )
    yield patch.object(torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda"))
    group = torch._C._group_tensors_by_device_and_dtype

    def grouped(*args: Any, **kwargs: Any) -> Any:
        """Optimisers ask PyTorch's own core where their tensors lie."""
        return {(lists[0][0][0].device, kind[1]): lists for kind, lists in group(*args, **kwargs).items()}

    yield patch.object(torch._C, "_group_tensors_by_device_and_dtype", grouped)
    for name in ("is_autocast_enabled", "get_autocast_dtype"):
        plain = getattr(torch, name)
        yield patch.object(torch, name, lambda kind="cpu", plain=plain: plain("cpu"))
    autocast = torch.amp.autocast_mode.autocast
    begin = autocast.__init__

    @functools.wraps(begin)
    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        begin(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    yield patch.object(autocast, "__init__", init)


_THERE = _There()
"""Of the process: what is cached on the device outlives a block."""


@contextmanager
def emulated_cuda() -> Iterator[None]:
    """Within the block there is a CUDA device, as the module says."""
    with ExitStack() as stack:
        for change in [*_patches(_THERE), *_machine()]:
            stack.enter_context(change)
        stack.enter_context(_Checked(_THERE))
        yield
