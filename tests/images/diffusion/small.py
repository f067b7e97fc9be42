"""A diffusion domain small enough for thousandths of a second, in fp64: a one-layer DiT on digits, with a reward that a
random model earns in part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from groupwise.config import merge, validate
from groupwise.domain.pass_sizes import DECODING, MOST_ROWS, SAMPLING, UPDATE
from groupwise.streams import Streams
from groupwise_images.diffusion.config import DiffusionConfig
from groupwise_images.diffusion.domain import DiffusionDomain

TABLE = {
    "kind": "diffusion",
    "model": {
        "kind": "scratch",
        "dtype": "float64",
        "seed": 3,
        "shape": {
            "sample_size": 8,
            "patch_size": 4,
            "in_channels": 1,
            "out_channels": 1,
            "num_layers": 1,
            "num_attention_heads": 2,
            "attention_head_dim": 4,
            "num_embeds_ada_norm": 10,
        },
    },
    "data": {"source": {"kind": "digits"}},
    "demonstrations": {},
    "sampler": {"kind": "cps", "eta": 0.6},
    "num_steps": 4,
    "rewards": {"bright": {"kind": "callable", "path": "tests.images.diffusion.small:bright"}},
    "evaluation": {"num_images": 2, "num_prompts": 3},
}

EVERYTHING = frozenset({"log_prob", "entropy", "score_norm", "mean_shift", "exact_divergence"})


def bright(completions: Sequence[Any], **columns: Any) -> list[float]:
    """The mean of an image's pixels."""
    return [float(image.double().mean()) / 255 for image in completions]


def config(changes: dict[str, Any] | None = None) -> DiffusionConfig:
    return validate(DiffusionConfig, merge(TABLE, changes or {}))


def domain(changes: dict[str, Any] | None = None) -> DiffusionDomain:
    """With sizes of passes that hold everything here, so that none is measured."""
    opened = measured_domain(changes)
    opened.pass_sizes.restore(dict.fromkeys((SAMPLING, UPDATE, DECODING), MOST_ROWS))
    return opened


def measured_domain(changes: dict[str, Any] | None = None) -> DiffusionDomain:
    """Measures its passes where it first computes."""
    return DiffusionDomain(config(changes), streams=Streams(0))


def sampled(
    given: DiffusionDomain,
    num_prompts: int = 2,
    group_size: int = 3,
    requires: frozenset[str] = EVERYTHING,
    step: int = 0,
) -> Any:
    samples = given.sample(
        given.prompts(range(num_prompts)), group_size, streams=Streams(0), step=step, settings={}, requires=requires
    )
    return given.with_reference(samples) if "exact_divergence" in requires else samples


def nudge(given: DiffusionDomain, size: float = 0.05, seed: int = 0) -> None:
    """Moves all weights a little."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in given.module.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(parameter))


def gradient(given: DiffusionDomain) -> torch.Tensor:
    """All gradients in one row, zeros where there is none."""
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in given.module.parameters()])
