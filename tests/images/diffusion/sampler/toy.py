"""A Gaussian toy whose flow is known, samplers followed in closed form, and a diffusers scheduler's own loop."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from groupwise_images.diffusion.sampler import Step
from groupwise_images.diffusion.transition import Schedule, Transition, transition


def at(schedule: Schedule, index: int) -> Step:
    return Step.of(schedule, torch.tensor([index]))


def known(parametrisation: str, latents: Tensor, a: float, b: float, mean: float, std: float) -> Tensor:
    """What a perfect model predicts where images are `N(mean, std^2)`: `x0 | x` and `e | x` are linear in `x`."""
    variance = a**2 * std**2 + b**2
    clean = mean + a * std**2 / variance * (latents - a * mean)
    noise = b / variance * (latents - a * mean)
    return {"flow": noise - clean, "epsilon": noise, "v_prediction": a * noise - b * clean, "sample": clean}[
        parametrisation
    ]


def moments(
    sampler: Any, schedule: Schedule, parametrisation: str, mean: float, std: float, upto: int
) -> tuple[float, float]:
    """Mean and variance of the latents after `upto` transitions from pure noise, followed exactly: each transition is
    affine.
    """
    a, b = float(schedule.signal[0]), float(schedule.noise[0])
    centre, variance = a * mean, a**2 * std**2 + b**2
    for index in range(upto):
        a, b = float(schedule.signal[index]), float(schedule.noise[index])
        probes = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        step = Step.of(schedule, torch.tensor([index, index]))
        found: Transition = transition(
            sampler, parametrisation, probes, known(parametrisation, probes, a, b, mean, std), step
        )
        offset, slope = float(found.mean[0]), float(found.mean[1] - found.mean[0])
        centre, variance = offset + slope * centre, slope**2 * variance + float(found.std[0]) ** 2
    return centre, variance
