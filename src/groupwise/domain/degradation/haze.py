"""Haze: air between the camera and what it sees, thicker where that is further away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, final

from pydantic import Field

from groupwise.config import Config

if TYPE_CHECKING:
    import numpy as np


@final
class Haze(Config):
    """`t x + (1 - t) air` with the transmission `t = exp(-density depth)`.

    The depth is drawn for each image, smooth and from 0 (near) to 1 (far): it rises towards one side, as a ground seen
    from above does, with hills on it.

    Args:
        density: optical depth of the furthest pixel; 1 leaves 37 % of its light.
        air: brightness of the air, where white is 1.
        hills: height of the hills beside the rise across the image, which has height 1.

    Example:
        >>> import numpy
        >>> hazy = Haze(density=2.0)(numpy.zeros((3, 16, 16), "float32"), numpy.random.default_rng(0))
        >>> round(float(hazy.min()), 3), round(float(hazy.max()), 3)  # black, and air over black: 0.9 (1 - exp(-2))
        (0.0, 0.778)

    Source: Koschmieder's law; Narasimhan and Nayar 2002, Vision and the Atmosphere, equation 3 with one colour of air.
    """

    factor: ClassVar[int] = 1

    kind: Literal["haze"] = "haze"
    density: Annotated[float, Field(ge=0, le=50)] = 1.5
    air: Annotated[float, Field(ge=0, le=1)] = 0.9
    hills: Annotated[float, Field(ge=0, le=100)] = 0.5

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        import numpy as np

        transmission = np.exp(-self.density * self._depth(image.shape[1], image.shape[2], random))
        return (transmission * image + (1 - transmission) * self.air).astype("float32")

    def _depth(self, height: int, width: int, random: np.random.Generator) -> np.ndarray:
        import numpy as np
        from scipy.ndimage import gaussian_filter

        angle = random.uniform(0, 2 * np.pi)
        rows, columns = np.linspace(-1, 1, height)[:, None], np.linspace(-1, 1, width)
        hills = gaussian_filter(random.standard_normal((height, width)), max(height, width) / 6, mode="reflect")
        depth = (np.cos(angle) * rows + np.sin(angle) * columns) / 2
        spread = hills.std()
        depth = depth + (self.hills * hills / (2 * spread) if spread > 0 else 0)
        least, most = depth.min(), depth.max()
        return (depth - least) / (most - least) if most > least else np.zeros_like(depth)
