"""Images among completions: where a domain makes images, `completions` holds one image a member and everything else
about a reward stays as it is.

An image is a `torch.uint8` tensor `[H, W]` (grey) or `[H, W, 3]` (RGB) on the CPU, 0 black and 255 full. Rewards may
also be handed numpy arrays of that form and PIL images, so that a function written for any of the three can be tried by
hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from groupwise.reward.base import Noted, RewardError, Value

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image
    from torch import Tensor


def is_image(completion: Any) -> bool:
    """Returns True where a completion is an array or a PIL image, False where it is a text or messages."""
    return hasattr(completion, "__array__") or hasattr(completion, "__array_interface__")


def is_picture(image: Tensor) -> bool:
    """Returns whether a tensor is an image for people: `uint8`, `[H, W]` or `[H, W, 3]`.

    Example:
        >>> import torch
        >>> is_picture(torch.zeros(2, 2, dtype=torch.uint8)), is_picture(torch.zeros(2, 2))
        (True, False)
    """
    import torch

    return image.dtype == torch.uint8 and image.shape[2:] in ((), (3,)) and image.dim() >= 2


def as_array(image: Any) -> np.ndarray:
    """Returns an image as `uint8 [H, W, 3]`; a grey image is repeated over the channels.

    Raises:
        RewardError: it is not an image of the agreed form; says what it is.

    Example:
        >>> import numpy
        >>> as_array(numpy.zeros((4, 6), dtype="uint8")).shape
        (4, 6, 3)
        >>> as_array("a text")
        Traceback (most recent call last):
        ...
        groupwise.reward.base.RewardError: this reward reads images, and a completion is of type str; an image is a torch.uint8 tensor [H, W] or [H, W, 3]
    """  # noqa: E501
    import numpy as np

    allowed_form = "an image is a torch.uint8 tensor [H, W] or [H, W, 3]"
    if not is_image(image):
        raise RewardError(
            f"this reward reads images, and a completion is of type {type(image).__name__}; {allowed_form}"
        )
    if hasattr(image, "detach"):
        image = image.detach().cpu()
    array = np.asarray(image.convert("RGB") if hasattr(image, "convert") else image)
    if (
        array.dtype != np.uint8
        or array.ndim not in (2, 3)
        or (array.ndim == 3 and array.shape[2] not in (1, 3))
        or 0 in array.shape
    ):
        if array.ndim == 4:
            allowed_form += '; of a video it reads the frames one by one: write domain.video_rewards = "frames"'
        raise RewardError(
            f"this reward reads images, and a completion is {array.dtype} {list(array.shape)}; {allowed_form}"
        )
    if array.ndim == 2:
        array = array[:, :, None]
    return array if array.shape[2] == 3 else array.repeat(3, axis=2)


def as_pil(image: Any) -> Image:
    """Returns an image as a PIL image in RGB."""
    from PIL import Image

    return Image.fromarray(as_array(image))


def in_batches(
    images: Sequence[Any], batch_size: int, score: Callable[[Sequence[Any], Sequence[int]], Sequence[float]]
) -> list[float]:
    """Applies `score(images, members)` to batches of at most `batch_size` images and joins the values.

    Example:
        >>> in_batches(
        ...     [3, 4, 5], 2, lambda batch, members: [10 * member + image for member, image in zip(members, batch)]
        ... )
        [3, 14, 25]
    """
    values: list[float] = []
    for start in range(0, len(images), batch_size):
        members = range(start, min(start + batch_size, len(images)))
        values += score([images[member] for member in members], members)
    return values


def one_by_one(
    images: Sequence[Any], score: Callable[[Any, int], Value], on_error: Literal["raise", "missing"]
) -> list[Value]:
    """Applies `score(image, member)` to every image. Under `on_error = "missing"` a member that raises is missing and
    counted, and the remaining members keep their values.

    Example:
        >>> one_by_one([1, 0], lambda image, member: 1 / image, "missing")[1].detail
        'ZeroDivisionError: division by zero'
    """
    values: list[Value] = []
    for member, image in enumerate(images):
        try:
            values.append(score(image, member))
        except Exception as error:
            if on_error == "raise":
                raise
            values.append(Noted(None, "error", f"{type(error).__name__}: {error}"))
    return values


def through_jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    """Compresses an image `uint8 [H, W]` or `[H, W, 3]` to JPEG of this quality (Pillow's, colour at half resolution)
    and returns the decoded image.

    Example:
        >>> import numpy
        >>> through_jpeg(numpy.full((8, 8), 128, "uint8"), 50).shape
        (8, 8)
    """
    import io

    import numpy as np
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, format="JPEG", quality=quality)
    return np.asarray(Image.open(file))
