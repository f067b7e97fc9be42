"""The optimiser over the trained parameters: AdamW or a class that is named, its rate set every step; the norm by which
gradients are clipped.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from groupwise.config import ConfigError, ImportPath, Problem, user_class, why_failed
from groupwise.learner.optimiser_source import OptimiserSource
from groupwise.learner.protocol import StepNumbers
from groupwise.learner.shards import whole_tensor


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
    except Exception as error:  # a stranger's class may fail in any way
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


def gradient_norm(parameters: Sequence[nn.Parameter]) -> torch.Tensor:
    """Returns the Euclidean norm over all gradients, on the parameters' device; 0 where there is none."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return torch.zeros(())
    return whole_tensor(torch.nn.utils.get_total_norm(gradients))


_PER_MATRIX = 256


@final
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
        self._moved_since = 0.0
        if after is not None and after.shape == self._before.shape:
            self._moved_since = _relative(self._before, after)

    def metrics(self) -> dict[str, float]:
        """Returns `weights/change`, the size of the step; `weights/stuck`, the share of the weights with a gradient
        that it left as they were; and `weights/rewritten`, how far the weights moved between the step before and this
        one, where something else than the optimiser writes them.
        """
        self._after = self._read(self._matrices)
        num_pulled = int(self._pulled.sum())
        stuck = int((self._pulled & (self._after == self._before)).sum()) / num_pulled if num_pulled else 0.0
        metrics = {"weights/change": _relative(self._after, self._before), "weights/stuck": stuck}
        return metrics | ({"weights/rewritten": self._moved_since} if self._moved_since else {})

    @staticmethod
    def _read(matrices: Sequence[Tensor]) -> Tensor:
        rows = [
            matrix.detach().reshape(-1)[:: max(1, matrix.numel() // _PER_MATRIX)][:_PER_MATRIX].double()
            for matrix in matrices
        ]
        return torch.cat(rows) if rows else torch.zeros(1, dtype=torch.float64)


def _gradient(parameter: nn.Parameter) -> Tensor:
    # Without one, as many zeros that take no memory.
    return parameter.detach().new_zeros(1).expand(parameter.numel()) if parameter.grad is None else parameter.grad


def _relative(weights: Tensor, before: Tensor) -> float:
    size = float(before.norm())
    return float((weights - before).norm()) / size if size > 0 else 0.0
