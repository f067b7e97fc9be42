"""Several degradations: one after the other, or one of them drawn for each image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, final

from pydantic import Field

from groupwise.config import Config
from groupwise.domain.restoration.degradation.blur import Blur
from groupwise.domain.restoration.degradation.callable import CallableDegradation
from groupwise.domain.restoration.degradation.gaussian_noise import GaussianNoise
from groupwise.domain.restoration.degradation.jpeg import Jpeg
from groupwise.domain.restoration.degradation.low_light import LowLight
from groupwise.domain.restoration.degradation.rain import Rain

if TYPE_CHECKING:
    import numpy as np

Part = Annotated[GaussianNoise | Blur | LowLight | Jpeg | Rain | CallableDegradation, Field(discriminator="kind")]


@final
class Mixed(Config):
    """All parts in their order (`choose = "all"`), or one drawn for each image (`choose = "one"`).

    Args:
        parts: degradations.

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

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        if self.choose == "one":
            return self.parts[int(random.integers(len(self.parts)))](image, random)
        for part in self.parts:
            image = part(image, random)
        return image
