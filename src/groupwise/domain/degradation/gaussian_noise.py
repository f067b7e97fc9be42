"""Noise of a camera, in its simplest form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, final

from pydantic import Field

from groupwise.config import Config

if TYPE_CHECKING:
    import numpy as np


@final
class GaussianNoise(Config):
    """`x + sigma z`, one normal number a pixel and channel; the result is not clamped.

    Args:
        sigma: standard deviation, on the scale on which white is 1 (a sigma of 25 grey levels is 25 / 255 = 0.098).

    Example:
        >>> import numpy
        >>> GaussianNoise(sigma=0.0)(numpy.full((1, 1, 2), 0.5, "float32"), numpy.random.default_rng(0)).tolist()
        [[[0.5, 0.5]]]
    """

    factor: ClassVar[int] = 1

    kind: Literal["gaussian_noise"] = "gaussian_noise"
    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        return (image + self.sigma * random.standard_normal(image.shape)).astype("float32")
