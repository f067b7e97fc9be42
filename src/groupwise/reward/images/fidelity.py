"""The fidelity of an image to its target: peak signal-to-noise ratio and structural similarity, as numbers and as maps
over the pixels.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

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
    import numpy as np

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
    import numpy as np
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
