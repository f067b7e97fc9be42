"""A photograph taken with too little light: darker, and with the noise of few photons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, final

from pydantic import Field

from groupwise.config import Config

if TYPE_CHECKING:
    import numpy as np


@final
class LowLight(Config):
    """`Poisson(photons * gain * x^gamma) / photons`.

    Args:
        gain: share of the light that is left, for white.
        gamma: above 1 darkens the middle tones more than white.
        photons: of a white pixel under full light; unset is no noise.

    Example:
        >>> import numpy
        >>> LowLight(gain=0.5, gamma=2.0, photons=None)(
        ...     numpy.full((1, 1, 1), 0.5, "float32"), numpy.random.default_rng(0)
        ... ).item()
        0.125
    """

    factor: ClassVar[int] = 1

    kind: Literal["low_light"] = "low_light"
    gain: Annotated[float, Field(gt=0, le=1)] = 0.3
    gamma: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.5
    photons: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 500.0

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        dark = self.gain * image.clip(0, 1) ** self.gamma
        return (dark if self.photons is None else random.poisson(self.photons * dark) / self.photons).astype("float32")
