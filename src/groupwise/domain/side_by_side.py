"""The picture of an evaluation: the same images degraded, restored and clean, row by row; below each its distance to
the clean one, or what was read in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from groupwise.reward import RewardTable
from groupwise.reward.images.fidelity import psnr, ssim

ROWS = ("degraded", "restored", "clean")
_SIDE = 96
_MOST = 256
_GAP = 2
_LINE = 14
_MARGIN = 52
_RIGHT, _WRONG = (0, 128, 0), (200, 0, 0)


def answers_in(
    table: RewardTable, rows: Mapping[str, Sequence[Tensor]], read: Callable[[Sequence[Tensor]], RewardTable]
) -> dict[str, Sequence[str]]:
    """Collects what the first reader that logs its answers (`read by ...`) read in each row of the picture; nothing
    where no reward does.

    Args:
        table: rewards of the restored images.
        rows: the images of the other rows, which are read for the picture alone.
        read: rewards of the images of a row.

    Example:
        >>> logged = RewardTable({"read": [1.0]}, {"read": 1.0}, extras={"read by a reader": ["seven"]})
        >>> answers_in(logged, {"clean": [torch.zeros(8, 8)]}, lambda images: logged)
        {'restored': ['seven'], 'clean': ['seven']}
    """
    column = next((name for name in table.extras if name.startswith("read by ")), None)
    if column is None:
        return {}
    return {"restored": table.extras[column]} | {row: read(images).extras[column] for row, images in rows.items()}


def side_by_side(
    degraded: Sequence[Tensor],
    restored: Sequence[Tensor],
    clean: Sequence[Tensor],
    answers: Mapping[str, Sequence[str]] | None = None,
    words: Sequence[str] = (),
) -> Tensor | None:
    """Draws images of one size below each other, enlarged by a whole number to some 96 pixels; PSNR (dB) and SSIM of
    each image stand below it. Where a reader read the images, its answers stand there, green where they are right and
    red where they are wrong. Degraded images that are smaller than the clean ones are enlarged by the bicubic filter.

    Of images of more than 256 pixels the middle is drawn.

    Args:
        degraded, restored, clean: uint8 `[H, W]` or `[H, W, 3]` each, the same image at the same place; degraded ones
            may be smaller. Without clean ones, which nobody has, there are two rows.
        answers: row -> what was read in each of its images; a row that is missing is captioned by its distance.
        words: the right answers, one an image.

    Returns:
        uint8 `[H, W]` or `[H, W, 3]`; None where there is no image.

    Example:
        >>> image = torch.full((8, 8), 128, dtype=torch.uint8)
        >>> canvas = side_by_side([image] * 2, [image] * 2, [image] * 2)
        >>> canvas.shape
        torch.Size([320, 248])
    """
    from PIL import Image, ImageDraw

    if not restored:
        return None
    rows = dict(zip(ROWS, (degraded, restored, clean) if clean else (degraded, restored), strict=False))
    middle = tuple(
        slice((side - _MOST) // 2, (side + _MOST) // 2) if side > _MOST else slice(None)
        for side in restored[0].shape[:2]
    )
    height, width = restored[0][middle].shape[:2]
    last = next(reversed(rows))
    factor = max(1, -(-_SIDE // width))
    across, down = factor * width + _GAP, factor * height + _LINE + _GAP
    grey = restored[0].dim() == 2
    answers = answers or {}
    canvas = Image.new(
        "L" if grey and not answers else "RGB",
        (
            _MARGIN + across * len(restored),
            down * (len(rows) - 1) + factor * height + (_LINE if last in answers else 0),
        ),
        "white",
    )
    draw = ImageDraw.Draw(canvas)
    for row, (name, images) in enumerate(rows.items()):
        label = name if images[0].shape == restored[0].shape else "bicubic"
        draw.text((2, row * down + factor * height // 2 - _LINE // 2), label, fill="black")
        for place in range(len(restored)):
            left = _MARGIN + place * across
            pixels = _as_large(images[place], restored[place])[middle]
            enlarged = pixels.repeat_interleave(factor, 0).repeat_interleave(factor, 1).numpy()
            canvas.paste(Image.fromarray(enlarged), (left, row * down))
            below = (left, row * down + factor * height + 1)
            if name in answers:
                answer, right = answers[name][place], answers[name][place] == words[place]
                draw.text(below, _printable(answer), fill=_RIGHT if right else _WRONG)
            elif clean and name != "clean":
                draw.text(below, _caption(pixels, clean[place][middle]), fill="black")
    return torch.from_numpy(np.array(canvas))


def _as_large(image: Tensor, clean: Tensor) -> Tensor:
    if image.shape == clean.shape:
        return image
    from PIL import Image

    size = (clean.shape[1], clean.shape[0])
    return torch.from_numpy(np.array(Image.fromarray(image.numpy()).resize(size, Image.Resampling.BICUBIC)))


def _caption(image: Tensor, clean: Tensor) -> str:
    image_pixels, clean_pixels = (np.atleast_3d(pixels.numpy()).transpose(2, 0, 1) / 255 for pixels in (image, clean))
    return f"{psnr(image_pixels, clean_pixels):.1f} dB  {ssim(image_pixels, clean_pixels):.3f}"


def _printable(answer: str) -> str:
    """Returns an answer in letters that the picture's font has; a dash where nothing was read."""
    return answer.encode("latin-1", "replace").decode("latin-1") or "-"
