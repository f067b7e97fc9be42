"""Fewer pixels: the input of super-resolution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

from groupwise.config import Config, ConfigError

if TYPE_CHECKING:
    import numpy as np


@final
class Downscale(Config):
    """An image of `1 / factor` the sides, each pixel a mean over the pixels that it stands for.

    A network that enlarges by the same factor (`network.kind = "upscaling"`) restores it: super-resolution.

    Args:
        factor: how many times smaller the sides become.
        filter: `bicubic` is the antialiased cubic filter in which the test sets of super-resolution were made; `box`
            is the plain mean over squares.

    Raises:
        ConfigError: a side of the image is no multiple of the factor.

    Example:
        >>> import numpy
        >>> ramp = numpy.arange(16, dtype="float32").reshape(1, 4, 4) / 16
        >>> Downscale(factor=2, filter="box")(ramp, numpy.random.default_rng(0)).tolist()
        [[[0.15625, 0.28125], [0.65625, 0.78125]]]
    """

    kind: Literal["downscale"] = "downscale"
    factor: Literal[2, 3, 4, 8] = 2
    filter: Literal["bicubic", "box"] = "bicubic"

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        import numpy as np
        from PIL import Image

        height, width = image.shape[1:]
        if height % self.factor or width % self.factor:
            raise ConfigError(
                f"degradation.factor = {self.factor}: an image of {height} x {width} pixels cannot be made so many"
                " times smaller; cut its sides to multiples of the factor, or write domain.patch = one"
            )
        kernel = Image.Resampling.BICUBIC if self.filter == "bicubic" else Image.Resampling.BOX
        size = (width // self.factor, height // self.factor)
        channels = [np.asarray(Image.fromarray(channel).resize(size, kernel)) for channel in image.astype("float32")]
        return np.stack(channels).clip(0, 1)
