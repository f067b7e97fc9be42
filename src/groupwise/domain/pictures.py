"""Images as people and rewards see them: 8 bits, on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from groupwise.config import ConfigError


def is_picture(image: Tensor) -> bool:
    """Returns whether a tensor is an image for people: `uint8`, `[H, W]` or `[H, W, 3]`.

    Example:
        >>> is_picture(torch.zeros(2, 2, dtype=torch.uint8)), is_picture(torch.zeros(2, 2))
        (True, False)
    """
    return image.dtype == torch.uint8 and image.shape[2:] in ((), (3,)) and image.dim() >= 2


def as_pictures(images: Tensor) -> Tensor:
    """Converts images `[N, C, H, W]` in [0, 1] to uint8 `[N, H, W]` (one channel) or `[N, H, W, 3]`, and videos `[N, F,
    3, H, W]` to `[N, F, H, W, 3]`.

    Raises:
        ConfigError: an image is not finite.

    Example:
        >>> as_pictures(torch.full((1, 1, 1, 2), 0.5)).tolist()
        [[[128, 128]]]
    """
    # Eight bits would turn NaN into black, and infinity into white.
    if not bool(images.isfinite().all()):
        raise ConfigError("model: the images that it makes hold NaN or infinity, which no picture can show")
    # In bfloat16 255.5 would be 256, which eight bits turn into 0: white into black.
    levels = (images.to(torch.promote_types(images.dtype, torch.float32)).clamp(0, 1) * 255 + 0.5).to(torch.uint8)
    levels = levels.cpu()
    if levels.dim() == 4 and levels.shape[1] == 1:
        return levels[:, 0]
    return levels.movedim(-3, -1).contiguous()
