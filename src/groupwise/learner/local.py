"""A learner whose weights are a module of this process, stepped by AdamW or another optimiser of torch's interface."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from groupwise.learner.copy import LocalCopy, adapters, hash_weights
from groupwise.learner.optimiser import (
    WeightChange,
    build_optimiser,
    configure_optimiser,
    gradient_norm,
    trained_parameters,
)
from groupwise.learner.optimiser_source import OptimiserSource
from groupwise.learner.protocol import OFFERS, Processes, Sizes, StepNumbers
from groupwise.learner.shards import StoredTensor, fill, gathered, local_part, process_mesh, release, reshard

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


# Recomputing activations in the backward pass, switched on and off on any module that offers it: less memory for more
# time, the same gradients.


def offers_checkpointing(module: nn.Module) -> bool:
    """Returns whether the module offers to recompute its activations.

    Example:
        >>> offers_checkpointing(nn.Linear(1, 1))
        False
    """
    return _method(module, "enable") is not None


def checkpoint_activations(module: nn.Module, active: bool) -> None:
    """Switches the recomputing of activations on or off, unless the module is in that state already.

    Args:
        module: a model of transformers or diffusers, perhaps with an adapter around it; where `active`, one that
            offers to recompute.
        active: whether activations are recomputed.

    Example:
        >>> checkpoint_activations(nn.Linear(1, 1), False)
    """
    if active == any(getattr(layer, "gradient_checkpointing", False) for layer in module.modules()):
        return
    if not active:
        _method(module, "disable")()
        return
    enable = _method(module, "enable")
    if enable.__name__.startswith("enable"):
        enable()
        return
    name = enable.__name__.removesuffix("_enable") + "_kwargs"
    # The re-entrant form loses gradients where a block's input carries none, as under an adapter.
    enable(**{name: {"use_reentrant": False}})


def _method(module: Any, verb: str) -> Any:
    """Returns the module's method that enables or disables recomputing, or `None` where the module has no such method.

    transformers renamed the method and warns at the old name; diffusers has the words in another order.
    """
    if getattr(module, "_supports_gradient_checkpointing", True) is False:
        return None
    names = (f"activation_checkpointing_{verb}", f"gradient_checkpointing_{verb}", f"{verb}_gradient_checkpointing")
    return next((method for name in names if callable(method := getattr(module, name, None))), None)


WEIGHTS = "model.safetensors"
"""The file that `LocalLearner.save` writes."""


@final
class LocalLearner:
    """The learner of a module of this process. `groupwise.learner.protocol.Learner` documents its methods.

    Args:
        module: the policy; its parameters with `requires_grad` are trained.
        make_shards: makes of a mesh of processes a copy of the module in shards, through which the owner of the module
            scores from then on; None where the module cannot be spread.

    Example:
        >>> module = nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.constant_(module.weight, 1.0)
        >>> learner = LocalLearner(module)
        >>> module(torch.ones(1, 1)).sum().backward()
        >>> learner.step(StepNumbers(learning_rate=0.5))
        1.0
        >>> round(module.weight.item(), 4)
        0.5
    """

    differentiates = True

    def __init__(self, module: nn.Module, make_shards: Callable[[DeviceMesh], nn.Module] | None = None) -> None:
        self.module = module
        self._make_shards = make_shards
        self._whole: nn.Module | None = None
        self._device = torch.device("cpu")
        self._source: OptimiserSource | None = None
        self.step_metrics: dict[str, float] = {}
        """What the newest step did to the weights, by metric; empty before one and of shards."""
        self._last_change: WeightChange | None = None

    @cached_property
    def optimiser(self) -> torch.optim.Optimizer:
        """The optimiser with its state."""
        return build_optimiser(self.module, self._source)

    def use_optimiser(self, source: OptimiserSource | None) -> None:
        """Makes the optimiser of the next steps; the present one stays, with its state, where it is the same.

        Args:
            source: the class and its arguments; None for AdamW.
        """
        if source != self._source:
            optimiser = build_optimiser(self.module, source)
            self._source, self.optimiser = source, optimiser

    @property
    def offers(self) -> frozenset[str]:
        """All abilities but those that the module itself lacks."""
        lacks = set[str]() if adapters(self.module) else {"adapter"}
        lacks |= set[str]() if self._make_shards is not None else {"sharding"}
        return frozenset(OFFERS) - lacks - (set[str]() if offers_checkpointing(self.module) else {"checkpointing"})

    def sizes(self) -> Sizes:
        """Counts parameters, tied ones once."""
        trained = trained_parameters(self.module)
        by_dtype: Counter[str] = Counter()
        for parameter in trained:
            by_dtype[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
        every = list(self.module.parameters())
        float16 = any(parameter.dtype == torch.float16 for parameter in every)
        return Sizes(by_dtype.total(), sum(parameter.numel() for parameter in every), by_dtype, float16)

    def train(self) -> None:
        """Switches the module to training mode."""
        self.module.train()

    def eval(self) -> None:
        """Switches the module to evaluation mode."""
        self.module.eval()

    def zero_gradients(self) -> None:
        """Forgets every gradient."""
        self.optimiser.zero_grad(set_to_none=True)

    def reduce_gradients(self, world: Processes) -> None:
        """Sums gradients over processes; those of shards were summed in the backward pass."""
        if self._whole is None:
            world.sum_gradients(trained_parameters(self.module))

    def step(self, numbers: StepNumbers) -> float:
        """Steps the optimiser where the gradient's norm is finite and above 0; returns the norm."""
        configure_optimiser(self.optimiser, numbers, rate_only=self._source is not None)
        parameters = trained_parameters(self.module)
        norm = gradient_norm(parameters)
        size = float(norm)
        if math.isfinite(size) and size != 0.0:
            if numbers.max_grad_norm is not None:
                torch.nn.utils.clip_grads_with_norm_(parameters, numbers.max_grad_norm, norm)
            change = None if self._whole is not None else WeightChange(parameters, self._last_change)
            self.optimiser.step()
            self.step_metrics = {} if change is None else change.metrics()
            self._last_change = change
        self.zero_gradients()
        return size

    def forget_moments(self) -> None:
        """Begins the optimiser anew."""
        if self._source is None:
            self.optimiser.state.clear()
        else:  # a class may keep state elsewhere too
            self.optimiser = build_optimiser(self.module, self._source)

    def copy(self, *, adapter_off: bool = False) -> LocalCopy:
        """Returns a second set of the weights.

        Args:
            adapter_off: whether it is the module without its adapter.
        """
        self._reshard()
        return LocalCopy(self.module, adapter_off=adapter_off)

    def record(self) -> dict[str, Any]:
        """Returns the tensors that training changes, and the optimiser's state."""
        self._reshard()
        record = {"weights": trained_tensors(self.module), "optimiser": self.optimiser.state_dict()}
        return record if self._source is None else record | {"optimiser_source": asdict(self._source)}

    def restore(self, record: Mapping[str, Any]) -> None:
        """Takes back what `record` returned.

        Raises:
            ValueError: the record is of another model.
        """
        self._reshard()
        self._last_change = None
        load_tensors(self.module, record["weights"])
        source = record.get("optimiser_source")
        self.use_optimiser(None if source is None else OptimiserSource(**source))
        self.optimiser.load_state_dict(self._like_weights(record["optimiser"]))

    def save(self, folder: Path) -> None:
        """Writes the module's state as `model.safetensors` into a folder that exists."""
        state = self.module.state_dict()
        save_file({name: value.detach().cpu().contiguous().clone() for name, value in state.items()}, folder / WEIGHTS)

    def load(self, folder: Path) -> None:
        """Loads the weights that `save` wrote."""
        self._last_change = None
        self.module.load_state_dict(load_file(folder / WEIGHTS))

    def fingerprint(self) -> str:
        """Returns a hash of the module's state."""
        return hash_weights(self.module)

    def checkpoint_activations(self, active: bool) -> None:
        """Switches the recomputing of activations.

        Args:
            active: whether they are recomputed.
        """
        checkpoint_activations(self.module, active)

    def shard(self, device: torch.device) -> None:
        """Spreads weights, gradients and moments over all processes; the module that was whole holds weights only
        within `gathered`.
        """
        assert self._make_shards is not None, "preflight asks for the offer"
        self._device = device
        self._whole, self.module = self.module, self._make_shards(process_mesh(device))
        self._whole.eval()
        # Nothing has stepped yet; the optimiser is of the weights that are trained from here on.
        self.__dict__.pop("optimiser", None)
        release(self._whole)

    @contextmanager
    def gathered(self, *, on_cpu: bool = False, here: bool = True) -> Iterator[None]:
        """Gives the whole module the live weights within the block, where they are spread."""
        device = torch.device("cpu") if on_cpu else self._device
        with nullcontext() if self._whole is None else gathered(self.module, self._whole, device, here=here):
            yield

    @contextmanager
    def rehearsal(self) -> Iterator[int]:
        """Puts the module into training mode within the block; gradients, mode and buffers are afterwards as before.
        The block gets the bytes of AdamW's two moments where the first step has yet to allocate them.
        """
        buffers = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        training = self.module.training
        parameters = [] if self.optimiser.state else trained_parameters(self.module)
        self.module.train()
        try:
            yield sum(2 * local_part(parameter).numel() * parameter.element_size() for parameter in parameters)
        finally:
            self.module.train(training)
            for buffer, before in buffers:
                buffer.data.copy_(before)
            self.zero_gradients()

    def _reshard(self) -> None:
        """Makes the parameters shards again after a pass without gradient, where they are spread."""
        if self._whole is not None:
            reshard(self.module)

    def _like_weights(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the optimiser's record with moments that are stored, or are to be sharded, as tensors like their
        weights.
        """
        parameters = [parameter for group in self.optimiser.param_groups for parameter in group["params"]]
        pairs: list[tuple[Tensor, Tensor | StoredTensor]] = []

        def like_weight(place: int, value: Any) -> Any:
            parameter = parameters[place].detach()
            stored = isinstance(value, StoredTensor)
            if not stored and (self._whole is None or getattr(value, "shape", None) != parameter.shape):
                return value
            pairs.append((torch.empty_like(parameter, dtype=value.dtype), value))
            return pairs[-1][0]

        state = {
            place: {name: like_weight(place, value) for name, value in moments.items()}
            for place, moments in record["state"].items()
        }
        fill(pairs)
        return {**record, "state": state}

    def close(self) -> None:
        """Does nothing: the weights live in this process, and no other one has to end."""


def trained_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Returns the tensors that training changes: parameters with `requires_grad`, and buffers.

    Example:
        >>> sorted(trained_tensors(nn.BatchNorm1d(1)))
        ['bias', 'num_batches_tracked', 'running_mean', 'running_var', 'weight']
    """
    trained: dict[str, Tensor] = {
        name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad
    }
    return trained | dict(module.named_buffers())


@torch.no_grad()
def load_tensors(module: nn.Module, tensors: Mapping[str, Tensor | StoredTensor]) -> None:
    """Copies tensors into the tensors of a module, in place.

    Args:
        module: the module whose trained tensors are overwritten.
        tensors: tensors by name, as `trained_tensors` returned them.

    Raises:
        ValueError: names or shapes differ.

    Example:
        >>> load_tensors(nn.Linear(1, 1), {"weight": torch.zeros(1, 1)})
        Traceback (most recent call last):
        ValueError: the checkpoint and this model differ in ['bias']
    """
    live = trained_tensors(module)
    if set(live) != set(tensors):
        raise ValueError(f"the checkpoint and this model differ in {sorted(set(live) ^ set(tensors))[:3]}")
    for name, tensor in tensors.items():
        if live[name].shape != tensor.shape:
            raise ValueError(
                f"the checkpoint's {name} is {list(tensor.shape)} and this model's {list(live[name].shape)}"
            )
    fill((live[name], tensor) for name, tensor in tensors.items())
