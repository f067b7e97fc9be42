"""An image that was stored as JPEG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, final

from pydantic import Field

from groupwise.config import Config

if TYPE_CHECKING:
    import numpy as np


@final
class Jpeg(Config):
    """Compression and decompression by Pillow; the image is rounded to 8 bits first.

    Args:
        quality: Pillow's.

    Example:
        >>> import numpy
        >>> Jpeg(quality=20)(numpy.zeros((3, 16, 16), "float32"), numpy.random.default_rng(0)).shape
        (3, 16, 16)
    """

    factor: ClassVar[int] = 1

    kind: Literal["jpeg"] = "jpeg"
    quality: Annotated[int, Field(ge=1, le=95)] = 20

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        from groupwise.reward.image import through_jpeg

        levels = (image.clip(0, 1) * 255 + 0.5).astype("uint8")
        decoded = through_jpeg(levels[0] if len(levels) == 1 else levels.transpose(1, 2, 0), self.quality)
        return (decoded[None] if decoded.ndim == 2 else decoded.transpose(2, 0, 1)).astype("float32") / 255
