"""Structural similarity as a reward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

from groupwise.reward.images import fidelity
from groupwise.reward.images.image_target import TargetReward

if TYPE_CHECKING:
    import numpy as np


@final
class Ssim(TargetReward):
    """`R` in [-1, 1]: luminance, contrast and structure of windows of 11 pixels compared; 1 for equal images.

    Example:
        >>> import numpy
        >>> target = numpy.arange(256, dtype="uint8").reshape(16, 16)
        >>> Ssim()([""], [target], clean=[target])
        [1.0]

    Source: Wang et al. 2004, Image Quality Assessment: From Error Visibility to Structural Similarity.
    """

    kind: Literal["ssim"] = "ssim"

    def number(self, image: np.ndarray, target: np.ndarray) -> float:
        return fidelity.ssim(image, target)

    def pixels(self, image: np.ndarray, target: np.ndarray) -> np.ndarray:
        return fidelity.ssim_map(image, target)
