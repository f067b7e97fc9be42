"""The learner of this process: weights, optimiser and gradients, on one device or in shards over the processes."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from groupwise.config import ConfigError, ImportPath, Problem, user_class, why_failed
from groupwise.learner import shards
from groupwise.learner.copy import LocalCopy, adapters, hash_weights
from groupwise.learner.optimiser_source import OptimiserSource
from groupwise.learner.protocol import OFFERS, Processes, Sizes, StepNumbers


def trained_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Returns the parameters with `requires_grad`, in the module's order, tied ones once."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def build_optimiser(module: nn.Module, source: OptimiserSource | None = None) -> torch.optim.Optimizer:
    """Returns an optimiser of two groups: matrices, which decay, and vectors, which do not. AdamW steps in one fused
    kernel.

    Args:
        source: the class of another optimiser than AdamW.

    Raises:
        ConfigError: the class cannot be loaded, refuses its arguments or these parameters, needs a closure, or has no
            rate that could be set.

    Example:
        >>> optimiser = build_optimiser(nn.Linear(2, 2))
        >>> configure_optimiser(optimiser, StepNumbers(learning_rate=1e-3, weight_decay=0.1))
        >>> [(len(group["params"]), group["weight_decay"]) for group in optimiser.param_groups]
        [(1, 0.1), (1, 0.0)]
        >>> source = OptimiserSource("torch.optim:SGD", {"weight_decay": 0.1})
        >>> [group["weight_decay"] for group in build_optimiser(nn.Linear(2, 2), source).param_groups]
        [0.1, 0.0]
    """
    parameters = trained_parameters(module)
    groups = [
        {"params": [parameter for parameter in parameters if parameter.dim() >= 2], "decays": True},
        {"params": [parameter for parameter in parameters if parameter.dim() < 2], "decays": False},
    ]
    present_groups = [group for group in groups if group["params"]]
    if source is None:
        return torch.optim.AdamW(present_groups, lr=0.0, fused=True)
    return _from_source(present_groups, source)


def optimiser_class(path: ImportPath) -> type[torch.optim.Optimizer]:
    """Loads the class of an optimiser.

    Raises:
        ConfigError: there is no such class of `torch.optim.Optimizer`, or its steps need a closure.
    """
    named_class = user_class(path, torch.optim.Optimizer, "optimiser.path")
    closure = inspect.signature(named_class.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        message = "its steps need a closure that computes the loss again; name a class whose steps need none"
        raise ConfigError(Problem(f"optimiser.path = {str(path)!r}", message))
    return named_class


def _from_source(groups: list[dict[str, Any]], source: OptimiserSource) -> torch.optim.Optimizer:
    place = f"optimiser.path = {source.path!r}"
    make: Any = optimiser_class(ImportPath(source.path))
    rate = inspect.signature(make).parameters.get("lr")
    required = {"lr": 1.0} if rate is not None and rate.default is rate.empty else {}
    try:
        optimiser = make(groups, **required, **source.arguments)
    except Exception as error:  # a user's class may fail in any way
        raise ConfigError(Problem(place, f"{make.__name__}(groups) failed: {why_failed(error)}")) from error
    for group in optimiser.param_groups:
        if "lr" not in group:
            raise ConfigError(Problem(place, "its groups have no lr, so that the run could not set the rate"))
        if not group["decays"] and "weight_decay" in group:
            group["weight_decay"] = 0.0
    return optimiser


def configure_optimiser(optimiser: torch.optim.Optimizer, numbers: StepNumbers, *, rate_only: bool = False) -> None:
    """Sets the numbers of a step on an optimiser of `build_optimiser`; its state stays.

    Args:
        rate_only: sets the rate alone, on an optimiser whose other numbers are its own.
    """
    for group in optimiser.param_groups:
        if rate_only:
            # An optimiser that is compiled or fused may keep its rate as a tensor.
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(numbers.learning_rate)
            else:
                group["lr"] = numbers.learning_rate
            continue
        group |= {
            "lr": numbers.learning_rate,
            "betas": (numbers.beta1, numbers.beta2),
            "eps": numbers.eps,
            "weight_decay": numbers.weight_decay if group["decays"] else 0.0,
        }


_PER_MATRIX = 256


class WeightChange:
    """The relative size of a step, `|w' - w| / |w|`, over evenly spread entries of every matrix; vectors (biases,
    scales of norms) count only where there is no matrix. Reading some hundred numbers takes no memory and hardly time.

    Args:
        parameters: trained ones, before the step.
        last: the measurement of the step before; unset at the first one, and after weights were loaded.

    Example:
        >>> weight = nn.Parameter(torch.ones(4, 4))
        >>> change = WeightChange([weight])
        >>> _ = weight.data.mul_(1.1)
        >>> {name: round(value, 3) for name, value in change.metrics().items()}
        {'weights/change': 0.1, 'weights/stuck': 0.0}
    """

    def __init__(self, parameters: Sequence[nn.Parameter], last: WeightChange | None = None) -> None:
        matrices = [parameter for parameter in parameters if parameter.dim() > 1] or list(parameters)
        self._matrices = [matrix for matrix in matrices if matrix.is_contiguous()]
        self._before = self._read(self._matrices)
        self._pulled = self._read([_gradient(matrix) for matrix in self._matrices]) != 0
        after = None if last is None else last._after
        self._after: Tensor | None = None
        if after is None or after.shape != self._before.shape:
            after = self._before
        self._moved_since = _sizes(self._before, after)

    def metrics(self) -> dict[str, float]:
        """Returns `weights/change`, the size of the step; `weights/stuck`, the share of the weights with a gradient
        that it left as they were; and `weights/rewritten`, how far the weights moved between the step before and this
        one, where something else than the optimiser writes them.
        """
        self._after = self._read(self._matrices)
        stuck = self._pulled & (self._after == self._before)
        counts = torch.stack([stuck.sum(), self._pulled.sum()]).to(self._before)
        # One transfer for all numbers: each would wait for the device.
        sizes = torch.stack([_sizes(self._after, self._before), counts, self._moved_since]).tolist()
        change, stuck_share, moved_since = (part / whole if whole > 0 else 0.0 for part, whole in sizes)
        metrics = {"weights/change": change, "weights/stuck": stuck_share}
        return metrics | ({"weights/rewritten": moved_since} if moved_since else {})

    @staticmethod
    def _read(matrices: Sequence[Tensor]) -> Tensor:
        rows = [
            matrix.detach().reshape(-1)[:: max(1, matrix.numel() // _PER_MATRIX)][:_PER_MATRIX].double()
            for matrix in matrices
        ]
        return torch.cat(rows) if rows else torch.zeros(1, dtype=torch.float64)


def _gradient(parameter: nn.Parameter) -> Tensor:
    # A missing gradient is replaced by as many zeros, which take no memory.
    return parameter.detach().new_zeros(1).expand(parameter.numel()) if parameter.grad is None else parameter.grad


def _sizes(weights: Tensor, before: Tensor) -> Tensor:
    """Returns how far the weights moved, and how large they were."""
    return torch.stack([(weights - before).norm(), before.norm()])


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
        """The effect of the newest step on the weights, by metric. It is empty before the first step, and for
        shards.
        """
        self._last_change: WeightChange | None = None

    @cached_property
    def optimiser(self) -> torch.optim.Optimizer:
        """The optimiser with its state."""
        return build_optimiser(self.module, self._source)

    @cached_property
    def _trained(self) -> list[nn.Parameter]:
        return trained_parameters(self.module)

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
            world.sum_gradients(self._trained)

    def step(self, numbers: StepNumbers) -> float:
        """Steps the optimiser where the gradient's norm is finite and above 0; returns the norm."""
        configure_optimiser(self.optimiser, numbers, rate_only=self._source is not None)
        parameters = self._trained
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norm = shards.whole_tensor(torch.nn.utils.get_total_norm(gradients))
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
        self._whole, self.module = self.module, self._make_shards(shards.process_mesh(device))
        self._whole.eval()
        # No optimiser step was taken yet, so the optimiser is built for the weights that are trained from here on.
        for stale in ("optimiser", "_trained"):
            self.__dict__.pop(stale, None)
        shards.release(self._whole)

    @contextmanager
    def gathered(self, *, on_cpu: bool = False, here: bool = True) -> Iterator[None]:
        """Gives the whole module the live weights within the block, where they are spread."""
        device = torch.device("cpu") if on_cpu else self._device
        with nullcontext() if self._whole is None else shards.gathered(self.module, self._whole, device, here=here):
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
            yield sum(2 * shards.local_part(parameter).numel() * parameter.element_size() for parameter in parameters)
        finally:
            self.module.train(training)
            for buffer, before in buffers:
                buffer.data.copy_(before)
            self.zero_gradients()

    def _reshard(self) -> None:
        """Makes the parameters shards again after a pass without gradient, where they are spread."""
        if self._whole is not None:
            shards.reshard(self.module)

    def _like_weights(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the optimiser's record, in which moments that are stored or still to be sharded have become tensors
        like their weights.
        """
        parameters = [parameter for group in self.optimiser.param_groups for parameter in group["params"]]
        pairs: list[tuple[Tensor, Tensor | shards.StoredTensor]] = []

        def like_weight(place: int, value: Any) -> Any:
            parameter = parameters[place].detach()
            stored = isinstance(value, shards.StoredTensor)
            if not stored and (self._whole is None or getattr(value, "shape", None) != parameter.shape):
                return value
            pairs.append((torch.empty_like(parameter, dtype=value.dtype), value))
            return pairs[-1][0]

        state = {
            place: {name: like_weight(place, value) for name, value in moments.items()}
            for place, moments in record["state"].items()
        }
        shards.fill(pairs)
        return {**record, "state": state}

    def close(self) -> None:
        """Does nothing: the weights are in this process, and no other process has to end."""


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
def load_tensors(module: nn.Module, tensors: Mapping[str, Tensor | shards.StoredTensor]) -> None:
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
    shards.fill((live[name], tensor) for name, tensor in tensors.items())
