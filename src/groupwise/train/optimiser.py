"""The optimiser itself: AdamW over what is trained, its rate set every step, gradients clipped by their global norm."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from groupwise.train.optimiser_config import OptimiserConfig


def trained_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Parameters with `requires_grad`, in the module's order, tied ones once."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def build_optimiser(config: OptimiserConfig, module: nn.Module) -> torch.optim.AdamW:
    """AdamW in two groups: matrices, which decay, and vectors, which do not. One fused kernel a step.

    Example:
        >>> optimiser = build_optimiser(OptimiserConfig(weight_decay=0.1), nn.Linear(2, 2))
        >>> [(len(group["params"]), group["weight_decay"]) for group in optimiser.param_groups]
        [(1, 0.1), (1, 0.0)]
    """
    parameters = trained_parameters(module)
    groups = [
        {"params": [parameter for parameter in parameters if parameter.dim() >= 2], "decays": True},
        {"params": [parameter for parameter in parameters if parameter.dim() < 2], "decays": False},
    ]
    optimiser = torch.optim.AdamW([group for group in groups if group["params"]], lr=0.0, fused=True)
    configure_optimiser(optimiser, config, 0)
    return optimiser


def configure_optimiser(optimiser: torch.optim.Optimizer, config: OptimiserConfig, step: int) -> float:
    """Sets the numbers of a step (counted from 0 inside the stage); moments stay. Returns the learning rate."""
    rate = config.rate(step)
    for group in optimiser.param_groups:
        group |= {
            "lr": rate,
            "betas": (config.beta1, config.beta2),
            "eps": config.eps,
            "weight_decay": config.weight_decay if group["decays"] else 0.0,
        }
    return rate


def gradient_norm(parameters: Sequence[nn.Parameter]) -> torch.Tensor:
    """Euclidean norm over all gradients, on the parameters' device; 0 where there is none."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return torch.zeros(())
    return torch.nn.utils.get_total_norm(gradients)
