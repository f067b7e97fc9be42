"""Peak signal-to-noise ratio as a reward, before or after a codec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, final

from pydantic import Field

from groupwise.config.numbers import Width
from groupwise.reward.images import fidelity
from groupwise.reward.images.image_target import TargetReward

if TYPE_CHECKING:
    import numpy as np


@final
class Psnr(TargetReward):
    """`R = -scale 10 log10(mean squared error)`, dB times `scale`.

    A network can be trained on it directly; a reward is of use where something stands between that has no gradient,
    such as a codec (`jpeg_quality`).

    Example:
        >>> import numpy
        >>> target = numpy.full((4, 4), 128, "uint8")
        >>> [round(value, 2) for value in Psnr()([""], [target + 1], clean=[target])]
        [48.13]
    """

    kind: Literal["psnr"] = "psnr"
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Factor, for sums with rewards on another scale."""
    window: Width = 8
    """Of a map: the error is averaged over squares of so many pixels on a side, which lie side by side as JPEG's blocks
    do.
    """

    def number(self, image: np.ndarray, target: np.ndarray) -> float:
        return self.scale * fidelity.psnr(image, target)

    def pixels(self, image: np.ndarray, target: np.ndarray) -> np.ndarray:
        return self.scale * fidelity.psnr_map(image, target, self.window)
