"""Rain: bright streaks, all falling the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, final

from pydantic import Field

from groupwise.config import Config
from groupwise.config.numbers import Length

if TYPE_CHECKING:
    import numpy as np


@final
class Rain(Config):
    """Streaks of light added to the image: drops at random pixels, drawn out to lines of one slope.

    Args:
        density: share of the pixels where a streak begins.
        length: of a streak, pixels.
        angle: the most it leans from the vertical, degrees; the lean is drawn for each image.
        strength: brightness of a streak, where white is 1.

    Example:
        >>> import numpy
        >>> wet = Rain(density=0.05)(numpy.zeros((3, 16, 16), "float32"), numpy.random.default_rng(0))
        >>> bool(wet.max() > 0), bool((wet[0] == wet[1]).all())
        (True, True)
    """

    factor: ClassVar[int] = 1

    kind: Literal["rain"] = "rain"
    density: Annotated[float, Field(ge=0, le=1)] = 0.01
    length: Length = 9
    angle: Annotated[float, Field(ge=0, lt=90)] = 20.0
    strength: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.4

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        import numpy as np

        height, width = image.shape[1:]
        slope = np.tan(np.deg2rad(random.uniform(-self.angle, self.angle)))
        drops = np.argwhere(random.random((height, width)) < self.density)
        streaks = np.zeros((height, width))
        for place in range(self.length):
            rows, columns = drops[:, 0] + place, np.round(drops[:, 1] + slope * place).astype(int)
            inside = (rows < height) & (columns >= 0) & (columns < width)
            streaks[rows[inside], columns[inside]] = self.strength
        return (image + streaks).clip(0, 1).astype("float32")
