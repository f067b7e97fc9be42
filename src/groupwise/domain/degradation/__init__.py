"""Degradations of clean images, one a file; adding a file to this union is the whole registration."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.domain.degradation.blur import Blur
from groupwise.domain.degradation.callable import CallableDegradation
from groupwise.domain.degradation.downscale import Downscale
from groupwise.domain.degradation.gaussian_noise import GaussianNoise
from groupwise.domain.degradation.haze import Haze
from groupwise.domain.degradation.jpeg import Jpeg
from groupwise.domain.degradation.low_light import LowLight
from groupwise.domain.degradation.mixed import Mixed
from groupwise.domain.degradation.rain import Rain

Degradation = Annotated[
    GaussianNoise | Blur | LowLight | Jpeg | Rain | Haze | Downscale | CallableDegradation | Mixed,
    Field(discriminator="kind"),
]
"""Any degradation, told apart by `kind`. Each is called as `degrade(image, random)` with an image fp32 `[C, H, W]` in
[0, 1] and a numpy generator, and gives one of `1 / factor` the sides; `factor` is 1 for all but those that shrink an
image.
"""

__all__ = [
    "Blur",
    "CallableDegradation",
    "Degradation",
    "Downscale",
    "GaussianNoise",
    "Haze",
    "Jpeg",
    "LowLight",
    "Mixed",
    "Rain",
]
