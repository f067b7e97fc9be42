"""The squared error as a reward, before or after a codec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, final

from pydantic import Field

from groupwise.reward.images.image_target import TargetReward

if TYPE_CHECKING:
    import numpy as np


@final
class SquaredError(TargetReward):
    """`R = -scale mean (image - target)^2`, images in [0, 1], at most 0.

    PSNR is its logarithm. Squared errors add up over an image and decibels do not: as a map (`result = "map"`) every
    block earns what it takes away from the image's own error, while in decibels a flat block, whose error is small,
    would weigh as much as all others.

    Example:
        >>> import numpy
        >>> target = numpy.full((4, 4), 102, "uint8")
        >>> [round(value, 4) for value in SquaredError()([""], [target + 51], clean=[target])]
        [-0.04]
    """

    kind: Literal["squared_error"] = "squared_error"
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Factor, for sums with rewards on another scale."""

    def number(self, image: np.ndarray, target: np.ndarray) -> float:
        return float(self.pixels(image, target).mean())

    def pixels(self, image: np.ndarray, target: np.ndarray) -> np.ndarray:
        import numpy as np

        return -self.scale * np.square(image - target).mean(0)
