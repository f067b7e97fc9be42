"""The fidelity of an image to its target: peak signal-to-noise ratio and structural similarity, as numbers and as maps
over the pixels.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, final

import numpy as np
from pydantic import Field, model_validator

from groupwise.config.errors import Width
from groupwise.reward.base import Reward, RewardError, RewardFunction
from groupwise.reward.completions import Text
from groupwise.reward.image import as_array, one_by_one, through_jpeg

_FLOOR = 1e-10
_WINDOW = 11
_PIECE = 256


def psnr(image: np.ndarray, target: np.ndarray) -> float:
    """Computes `-10 log10(mean (image - target)^2)` in dB for images in [0, 1] of one shape; at most 100 dB, the value
    of equal images.

    Example:
        >>> import numpy
        >>> round(psnr(numpy.full((1, 4, 4), 0.6), numpy.full((1, 4, 4), 0.5)), 4)
        20.0
    """
    import torch
    from torchmetrics.functional.image import peak_signal_noise_ratio

    if (image == target).all():
        return -10 * math.log10(_FLOOR)
    decibels = peak_signal_noise_ratio(
        torch.as_tensor(image).double(), torch.as_tensor(target).double(), data_range=1.0
    )
    return min(float(decibels), -10 * math.log10(_FLOOR))


def psnr_map(image: np.ndarray, target: np.ndarray, window: int) -> np.ndarray:
    """Computes `-10 log10` of the squared error, averaged over the channels and over squares of `window` pixels on a
    side, dB `[H, W]`; at most 100 dB.

    The squares lie side by side from the upper left corner, as JPEG's blocks do, so that no pixel speaks for another's
    square; those at the lower and right edge are cut.

    Args:
        image, target: `[C, H, W]` in [0, 1].
        window: side of a square, in pixels.

    Example:
        >>> import numpy
        >>> decibels = psnr_map(numpy.array([[[0.6, 0.6, 0.51]]]), numpy.array([[[0.5, 0.5, 0.5]]]), 2)
        >>> decibels.round(4).tolist()
        [[20.0, 20.0, 40.0]]
    """
    error = np.square(np.asarray(image, dtype=np.float64) - target).mean(0)
    height, width = error.shape
    rows, columns = np.arange(0, height, window), np.arange(0, width, window)
    counts = np.minimum(window, height - rows)[:, None] * np.minimum(window, width - columns)
    mean = np.add.reduceat(np.add.reduceat(error, rows, axis=0), columns, axis=1) / counts
    decibels = -10 * np.log10(np.maximum(mean, _FLOOR))
    return decibels.repeat(window, 0)[:height].repeat(window, 1)[:, :width]


def ssim(image: np.ndarray, target: np.ndarray) -> float:
    """Computes structural similarity with a Gaussian window of 11 pixels (sigma 1.5), the mean over pixels and
    channels; 1 for equal images.

    Torchmetrics mirrors an image at its edges and averages over every pixel, so that the number is the mean of the map;
    scikit-image leaves 5 pixels at each edge out, and agrees inside them. The window shrinks to the image where that is
    smaller (the largest odd number that fits).

    Images of more than 256 pixels are measured in pieces and in single precision: for three million pixels that is a
    twentieth of the memory and a tenth of the time, and the number differs by some 1e-6.

    Args:
        image, target: `[C, H, W]` in [0, 1].

    Source: Wang et al. 2004, Image Quality Assessment: From Error Visibility to Structural Similarity.
    """
    return _ssim(image, target)[0]


def ssim_map(image: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Computes structural similarity at every pixel, the mean over channels, `[H, W]`."""
    return _ssim(image, target)[1]


def _ssim(image: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray]:
    import torch
    from torchmetrics.functional.image import structural_similarity_index_measure

    size = min(image.shape[1:])
    window = min(_WINDOW, size if size % 2 else size - 1)
    # With `gaussian_kernel` the window's size follows from sigma: 11 pixels at 1.5.
    settings: dict[str, Any] = {
        "data_range": 1.0,
        "sigma": 1.5 * window / _WINDOW,
        "kernel_size": window,
        "return_full_image": True,
    }
    height, width = image.shape[1:]
    if max(height, width) <= _PIECE:
        image_tensor, target_tensor = (torch.as_tensor(pixels).double()[None] for pixels in (image, target))
        mean, full_map = structural_similarity_index_measure(image_tensor, target_tensor, **settings)
        return float(mean), full_map[0].mean(0).numpy()
    similarity = np.empty((height, width))
    for top in range(0, height, _PIECE):
        for left in range(0, width, _PIECE):
            # The piece is extended by a window on each side, so that its edge does not change the result.
            above, before = min(top, _WINDOW), min(left, _WINDOW)
            part = (
                slice(None),
                slice(top - above, top + _PIECE + _WINDOW),
                slice(left - before, left + _PIECE + _WINDOW),
            )
            image_tensor, target_tensor = (
                torch.as_tensor(np.ascontiguousarray(pixels[part])).float()[None] for pixels in (image, target)
            )
            piece = (
                structural_similarity_index_measure(image_tensor, target_tensor, **settings)[1][0]
                .double()
                .mean(0)
                .numpy()
            )
            rows, columns = min(_PIECE, height - top), min(_PIECE, width - left)
            similarity[top : top + rows, left : left + columns] = piece[above : above + rows, before : before + columns]
    return float(similarity.mean()), similarity


def luma(image: np.ndarray) -> np.ndarray:
    """Computes the luma of BT.601, `(65.481 R + 128.553 G + 24.966 B + 16) / 255`, `[1, H, W]`.

    Args:
        image: `[3, H, W]` in [0, 1].

    Example:
        >>> import numpy
        >>> (luma(numpy.ones((3, 1, 1))) * 255).round(3).tolist(), (luma(numpy.zeros((3, 1, 1))) * 255).tolist()
        ([[[235.0]]], [[[16.0]]])
    """
    return (np.tensordot(np.array([65.481, 128.553, 24.966]), image, 1)[None] + 16) / 255


class TargetReward(Reward):
    """The common part of the rewards that compare with a target: the column of the target, an optional codec before the
    comparison, and the choice of a number or a map. Missing where a row has no target.
    """

    column: str = "clean"
    """The data column with the target image."""
    jpeg_quality: Annotated[int, Field(ge=1, le=95)] | None = None
    """The image is stored as JPEG of this quality and read again before it is compared: what arrives is what counts."""
    result: Literal["number", "map"] = "number"
    """One value an image, or one a pixel, from which decisions that are blocks of pixels get advantages of their own.
    """
    channel: Literal["all", "y"] = "all"
    """`y` compares the luma of colour images alone, as papers on super-resolution do: that of BT.601 from 16 to 235,
    which MATLAB's `rgb2ycbcr` gives, not rounded. Grey images are compared as they are.
    """
    border: Annotated[int, Field(ge=0, le=1024)] = 0
    """Pixels that are cut off at every edge before the comparison; papers cut as many as the scale of enlargement."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.border and self.result == "map":
            raise ValueError(f"border = {self.border}: a map has a value for every pixel; write border = 0")
        return self

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.column,)

    def open(self) -> RewardFunction:
        # The import runs in the thread that opens the reward: two rewards that import the library at the same time in
        # their own threads can deadlock.
        import torchmetrics.functional.image  # noqa: F401

        return self

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> Any:
        targets = columns[self.column]
        return one_by_one(completions, lambda image, member: self._compared(image, targets[member]), self.on_error)

    @abstractmethod
    def number(self, image: np.ndarray, target: np.ndarray) -> float:
        """Computes the reward of `[C, H, W]` images in [0, 1]."""

    @abstractmethod
    def pixels(self, image: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Computes the reward at every pixel, `[H, W]`."""

    def _compared(self, image: Any, target: Any) -> Any:
        if target is None:
            return None
        image_pixels, target_pixels = as_array(image), as_array(target)
        if image_pixels.shape != target_pixels.shape:
            raise RewardError(
                f"the image is {list(image_pixels.shape[:2])} pixels and its target (column {self.column!r})"
                f" {list(target_pixels.shape[:2])}"
            )
        if all(getattr(pixels, "ndim", 3) == 2 for pixels in (image, target)):
            # Grey images stay at one channel: this saves two thirds of the work, and matches the file in which a grey
            # image would be stored.
            image_pixels, target_pixels = image_pixels[:, :, :1], target_pixels[:, :, :1]
        if self.jpeg_quality is not None:
            stored = through_jpeg(
                image_pixels if image_pixels.shape[2] == 3 else image_pixels[:, :, 0], self.jpeg_quality
            )
            image_pixels = stored if stored.ndim == 3 else stored[:, :, None]
        image_channels, target_channels = (
            pixels.transpose(2, 0, 1).astype("float64") / 255 for pixels in (image_pixels, target_pixels)
        )
        return self.compared(image_channels, target_channels)

    def compared(self, image: np.ndarray, target: np.ndarray) -> Any:
        """Computes the reward of `[C, H, W]` images in [0, 1] on its channel and inside its border."""
        if self.channel == "y" and len(image) == 3:
            image, target = luma(image), luma(target)
        if self.border:
            if min(image.shape[1:]) <= 2 * self.border:
                raise RewardError(
                    f"border = {self.border} leaves nothing of an image of {list(image.shape[1:])} pixels; write less"
                )
            inside = (slice(None), slice(self.border, -self.border), slice(self.border, -self.border))
            image, target = image[inside], target[inside]
        return self.number(image, target) if self.result == "number" else self.pixels(image, target)


@final
class Psnr(TargetReward):
    """`R = -scale 10 log10(mean squared error)`, dB times `scale`.

    A network can be trained on it directly; a reward is of use where something is between that has no gradient,
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
    """The side of a map's squares in pixels: the error is averaged over squares that lie side by side as JPEG's blocks.
    """

    def number(self, image: np.ndarray, target: np.ndarray) -> float:
        return self.scale * psnr(image, target)

    def pixels(self, image: np.ndarray, target: np.ndarray) -> np.ndarray:
        return self.scale * psnr_map(image, target, self.window)


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
    edges: Literal["mirrored", "left_out"] = "mirrored"
    """`left_out` takes the mean over windows that lie inside the image, as papers and scikit-image do."""

    def number(self, image: np.ndarray, target: np.ndarray) -> float:
        if self.edges == "mirrored":
            return ssim(image, target)
        similarity, edge = ssim_map(image, target), _WINDOW // 2
        if min(similarity.shape) <= 2 * edge:
            raise RewardError(
                f"edges = 'left_out': no window of {_WINDOW} pixels lies inside {list(similarity.shape)} pixels"
            )
        return float(similarity[edge:-edge, edge:-edge].mean())

    def pixels(self, image: np.ndarray, target: np.ndarray) -> np.ndarray:
        return ssim_map(image, target)


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
        return -self.scale * np.square(image - target).mean(0)
