"""A restoration domain small enough for thousandths of a second, in fp64: digits, a few channels, a reward that a
random network earns in part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from groupwise.config import merge, validate
from groupwise.domain.protocol import Samples
from groupwise.streams import Streams
from groupwise_images.restoration.config import RestorationConfig
from groupwise_images.restoration.domain import RestorationDomain

TABLE: dict[str, Any] = {
    "kind": "restoration",
    "model": {
        "kind": "network",
        "dtype": "float64",
        "seed": 3,
        "network": {"kind": "residual", "width": 4, "depth": 1},
    },
    "source": {"kind": "digits", "num_train": 12},
    "num_train": 12,
    "degradation": {"kind": "gaussian_noise", "sigma": 0.5},
    "policy": {"kind": "pixels", "sigma": 0.2},
    "rewards": {"bright": {"kind": "callable", "path": "tests.images.restoration.small:bright"}},
    "evaluation": {"num_images": 4},
}
UPSCALED = merge(
    TABLE,
    {
        "model": {"network": {"kind": "upscaling", "width": 4, "depth": 1, "scale": 2}},
        "degradation": {"kind": "downscale", "factor": 2},
    },
)
GATED = merge(TABLE, {"model": {"network": {"kind": "gated", "width": 4, "depth": 1}}, "policy": {"kind": "gates"}})
EVERYTHING = frozenset({"log_prob", "entropy", "score_norm", "mean_shift", "exact_divergence"})


def bright(prompts: Sequence[Any], completions: Sequence[Any]) -> list[float]:
    """The mean brightness of the upper half."""
    return [float(image[: len(image) // 2].float().mean()) / 255 for image in completions]


def bright_map(prompts: Sequence[Any], completions: Sequence[Any]) -> list[Any]:
    """The brightness of every pixel."""
    return [image.numpy() / 255 for image in completions]


def small_map(prompts: Sequence[Any], completions: Sequence[Any]) -> list[Any]:
    """A map of half the size."""
    return [image.numpy()[::2, ::2] / 255 for image in completions]


def channels_map(prompts: Sequence[Any], completions: Sequence[Any]) -> list[Any]:
    """A map with channels."""
    return [image.numpy()[None] / 255 for image in completions]


def config(changes: dict[str, Any] | None = None, table: dict[str, Any] = TABLE) -> RestorationConfig:
    return validate(RestorationConfig, merge(table, changes or {}), "test")


def domain(changes: dict[str, Any] | None = None, table: dict[str, Any] = TABLE) -> RestorationDomain:
    return RestorationDomain(config(changes, table), streams=Streams(0))


def sampled(
    given: RestorationDomain,
    group_size: int = 3,
    step: int = 0,
    requires: frozenset[str] = EVERYTHING,
    reference: bool = True,
) -> Samples:
    samples = given.sample(
        given.prompts([0, 5]),
        group_size,
        streams=Streams(7),
        step=step,
        settings={},
        requires=requires & given.supplies,
    )
    return given.with_reference(samples) if reference else samples


def nudge(given: RestorationDomain, size: float = 0.05) -> None:
    """Moves the weights a little, the same way every time."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in given.module.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(parameter)


def gradient(given: RestorationDomain) -> torch.Tensor:
    found = torch.cat(
        [
            torch.zeros(0),
            *(parameter.grad.flatten() for parameter in given.module.parameters() if parameter.grad is not None),
        ]
    )
    given.module.zero_grad()
    return found
