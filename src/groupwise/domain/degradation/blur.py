"""An image out of focus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, final

from pydantic import Field

from groupwise.config import Config

if TYPE_CHECKING:
    import numpy as np


@final
class Blur(Config):
    """Convolution with a Gaussian, the edge repeated outwards.

    Args:
        sigma: its standard deviation, pixels.

    Example:
        >>> import numpy
        >>> flat = Blur(sigma=2.0)(numpy.full((1, 8, 8), 0.25, "float32"), numpy.random.default_rng(0))
        >>> bool(abs(flat - 0.25).max() < 1e-6)
        True
    """

    factor: ClassVar[int] = 1

    kind: Literal["blur"] = "blur"
    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        from scipy.ndimage import gaussian_filter

        return gaussian_filter(image, sigma=(0, self.sigma, self.sigma), mode="nearest").astype("float32")
