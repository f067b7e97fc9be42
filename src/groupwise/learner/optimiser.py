"""The optimiser: AdamW over the trained parameters, its rate set every step, gradients clipped by their global norm."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from groupwise.learner.protocol import StepNumbers


def trained_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Returns the parameters with `requires_grad`, in the module's order, tied ones once."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def build_optimiser(module: nn.Module) -> torch.optim.AdamW:
    """Returns AdamW in two groups: matrices, which decay, and vectors, which do not. A step is one fused kernel.

    Example:
        >>> optimiser = build_optimiser(nn.Linear(2, 2))
        >>> configure_optimiser(optimiser, StepNumbers(learning_rate=1e-3, weight_decay=0.1))
        >>> [(len(group["params"]), group["weight_decay"]) for group in optimiser.param_groups]
        [(1, 0.1), (1, 0.0)]
    """
    parameters = trained_parameters(module)
    groups = [
        {"params": [parameter for parameter in parameters if parameter.dim() >= 2], "decays": True},
        {"params": [parameter for parameter in parameters if parameter.dim() < 2], "decays": False},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=0.0, fused=True)


def configure_optimiser(optimiser: torch.optim.Optimizer, numbers: StepNumbers) -> None:
    """Sets the numbers of a step on an optimiser of `build_optimiser`; its moments stay."""
    for group in optimiser.param_groups:
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
    return torch.nn.utils.get_total_norm(gradients)
