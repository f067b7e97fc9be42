"""The small diffusion domain conditioned on an image: noisy digits in fp64."""

from __future__ import annotations

from typing import Any

from tests.images.diffusion.small import TABLE

from groupwise.config import merge, validate
from groupwise.streams import Streams
from groupwise_images.diffusion.config import DiffusionConfig
from groupwise_images.diffusion.domain import DiffusionDomain

SIGMA = 0.6
PAIRS: dict[str, Any] = {
    **TABLE,
    "model": {**TABLE["model"], "shape": {**TABLE["model"]["shape"], "in_channels": 2, "num_embeds_ada_norm": 1}},
    "data": {
        "source": {
            "kind": "image_pairs",
            "images": {"kind": "digits", "num_train": 1790},
            "degradation": {"kind": "gaussian_noise", "sigma": SIGMA},
            "repeats": 2,
        }
    },
    "rewards": {
        "read": {"kind": "callable", "path": "groupwise_images.restoration.readers:named_digits"},
        "psnr": {"kind": "psnr"},
    },
    "evaluation": {"num_images": 1, "num_rows": 4},
}


def config(changes: dict[str, Any] | None = None) -> DiffusionConfig:
    return validate(DiffusionConfig, merge(PAIRS, changes or {}))


def domain(changes: dict[str, Any] | None = None) -> DiffusionDomain:
    return DiffusionDomain(config(changes), streams=Streams(0))
