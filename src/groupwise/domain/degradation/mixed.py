"""Several degradations: one after the other, or one of them drawn for each image."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal, final

from pydantic import Field, model_validator

from groupwise.config import Config
from groupwise.domain.degradation.blur import Blur
from groupwise.domain.degradation.callable import CallableDegradation
from groupwise.domain.degradation.downscale import Downscale
from groupwise.domain.degradation.gaussian_noise import GaussianNoise
from groupwise.domain.degradation.haze import Haze
from groupwise.domain.degradation.jpeg import Jpeg
from groupwise.domain.degradation.low_light import LowLight
from groupwise.domain.degradation.rain import Rain

if TYPE_CHECKING:
    import numpy as np

Part = Annotated[
    GaussianNoise | Blur | LowLight | Jpeg | Rain | Haze | Downscale | CallableDegradation, Field(discriminator="kind")
]


@final
class Mixed(Config):
    """All parts in their order (`choose = "all"`), or one drawn for each image (`choose = "one"`).

    Args:
        parts: degradations. Where one is drawn, all must shrink an image by the same factor.

    Example:
        >>> import numpy
        >>> twice_darker = Mixed(
        ...     parts=(LowLight(gain=0.5, gamma=1.0, photons=None), LowLight(gain=0.5, gamma=1.0, photons=None))
        ... )
        >>> twice_darker(numpy.ones((1, 1, 1), "float32"), numpy.random.default_rng(0)).item()
        0.25
    """

    kind: Literal["mixed"] = "mixed"
    parts: Annotated[tuple[Part, ...], Field(min_length=1)]
    choose: Literal["all", "one"] = "all"

    @model_validator(mode="after")
    def _one_size(self) -> Mixed:
        factors = {part.kind: part.factor for part in self.parts}
        if self.choose == "one" and len(set(factors.values())) > 1:
            raise ValueError(
                f'choose = "one" would give images of several sizes: factors are {factors}; give parts of one factor,'
                ' or write choose = "all"'
            )
        return self

    @property
    def factor(self) -> int:
        """How many times smaller the sides become: the product over the parts, or that of each where one is drawn."""
        return self.parts[0].factor if self.choose == "one" else math.prod(part.factor for part in self.parts)

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        if self.choose == "one":
            return self.parts[int(random.integers(len(self.parts)))](image, random)
        for part in self.parts:
            image = part(image, random)
        return image
