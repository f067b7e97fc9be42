"""Evaluations of images: chunks of prompts are drawn and judged, and become means, records and a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, final

import numpy as np
import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.base import in_shares
from groupwise.domain.protocol import Peers
from groupwise.reward import RewardTable
from groupwise_images.reward.similarity import psnr, ssim

_MOST_ELEMENTS = 2**20
_MOST_IMAGES = 1024

_Prompt = TypeVar("_Prompt")


@final
@dataclass(frozen=True)
class JudgedImages:
    """The images of some prompts, judged.

    Args:
        shown: those that people see, by their places among all images.
        table: rewards of all.
        measured: what else was measured, by the metric's name.
    """

    shown: Mapping[int, Any]
    table: RewardTable
    measured: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @staticmethod
    def concatenate(parts: Sequence[JudgedImages]) -> JudgedImages:
        """Joins the judged images of consecutive prompts."""
        names = dict.fromkeys(name for part in parts for name in part.measured)
        return JudgedImages(
            {place: image for part in parts for place, image in part.shown.items()},
            RewardTable.concatenate([part.table for part in parts]),
            {name: [value for part in parts for value in part.measured.get(name, ())] for name in names},
        )

    def metrics(self, mode: str) -> dict[str, float]:
        """Computes means over all images: of the rewards, called `mode/...` (see `means`), and of the other measured
        numbers.
        """
        further = {name: math.fsum(values) / len(values) for name, values in self.measured.items()}
        return means(mode, self.table) | further


def judged_in_chunks(
    prompts: Sequence[_Prompt],
    size: int,
    judge: Callable[[Sequence[tuple[int, _Prompt]]], JudgedImages],
    peers: Peers | None,
    accompany: Callable[[], object] | None = None,
) -> JudgedImages:
    """Judges the images of many prompts, each process its share and a chunk at a time, so that images are let go before
    the next are drawn.

    Args:
        prompts: all that are evaluated, the same on all processes.
        size: prompts of a chunk.
        judge: draws and judges the images of a chunk: prompts with their places among all.
        peers: the processes; None for this process alone.
        accompany: draws as often as a chunk does, where weights are sharded and a process draws only while all others
            do: one that has fewer chunks than another calls it meanwhile.
    """

    def num_chunks(count: int) -> int:
        return -(-count // size)

    most = max(peers.gather(num_chunks(len(peers.share(len(prompts)))))) if peers and accompany else 0

    def wait(num_judged: int) -> None:
        for _ in range(num_judged, most):
            assert accompany is not None
            accompany()

    def judge_share(placed: Sequence[tuple[int, _Prompt]]) -> JudgedImages:
        judged = [judge(placed[start : start + size]) for start in range(0, len(placed), size)]
        wait(num_chunks(len(placed)))
        return JudgedImages.concatenate(judged)

    return JudgedImages.concatenate(in_shares(list(enumerate(prompts)), peers, judge_share, idle=partial(wait, 0)))


def images_at_once(elements: int, rows: int) -> int:
    """Returns the number of images that are made and judged before they are let go: at most 1,024, fewer where they are
    large, and no fewer than fill a pass.

    Args:
        elements: numbers in the largest image, or in its latent.
        rows: images in a pass.

    Example:
        >>> images_at_once(8 * 8, 64), images_at_once(3 * 64 * 64, 64), images_at_once(3 * 256 * 256, 64)
        (1024, 85, 64)
    """
    return max(rows, min(_MOST_IMAGES, _MOST_ELEMENTS // elements))


def means(mode: str, table: RewardTable) -> dict[str, float]:
    """Computes means over all images, called `mode/...`: the rewards' sum, each reward and judge.

    A reward that is missing for an image is left out of its mean; one that is missing everywhere is left out
    altogether.

    Args:
        mode: how the images came about.
        table: rewards of the images.

    Example:
        >>> means("ode", RewardTable({"seen": [1.0, None, 0.0]}, {"seen": 2.0}))
        {'ode/reward': 1.0, 'ode/seen': 0.5}
    """
    means_by_name: dict[str, float] = {}
    for name, values in (("reward", table.total("sum")), *table.values.items()):
        present = [value for value in values if value is not None]
        if present:
            means_by_name[f"{mode}/{name}"] = math.fsum(present) / len(present)
    return means_by_name


def records(
    mode: str,
    keys: Sequence[str],
    prompts: Sequence[Any],
    numbers: Sequence[int],
    table: RewardTable,
    images: Sequence[Tensor] | Tensor,
    limit: int,
) -> list[Mapping[str, Any]]:
    """Writes one record an image: key, mode and rewards of all (for paired comparisons), prompt and image of the first
    `limit`.

    Args:
        mode: how the images came about.
        keys: the keys of the prompt of each image.
        prompts: what people read of it.
        numbers: the image's place among those of its prompt.
        table: rewards of the images.
        images: uint8 `[H, W]` or `[H, W, 3]` each.
        limit: images written down.
    """
    totals = table.total("sum")
    image_records: list[Mapping[str, Any]] = []
    for place, key in enumerate(keys):
        record: dict[str, Any] = {
            "key": key,
            "mode": mode,
            "sample": numbers[place],
            "rewards": {name: values[place] for name, values in table.values.items()},
            "reward": totals[place],
        }
        image_records.append(record | ({"prompt": prompts[place], "image": images[place]} if place < limit else {}))
    return image_records


# The picture of an evaluation.

ROWS = ("degraded", "restored", "clean")
_SIDE = 96
_MOST = 256
_GAP = 2
_LINE = 14
_MARGIN = 52
_RIGHT, _WRONG = (0, 128, 0), (200, 0, 0)


def side_by_side(
    degraded: Sequence[Tensor],
    restored: Sequence[Tensor],
    clean: Sequence[Tensor],
    columns: Sequence[Mapping[str, Any]],
    table: RewardTable,
) -> Tensor:
    """Draws images of one size below each other: given, restored, target. PSNR (dB) and SSIM of each are below it.
    Where a reward logs what it read (`read by ...`), that is below the restored images, green where it is right
    and red where it is wrong. Degraded images that are smaller than the clean ones are enlarged by the bicubic filter.

    Of images of more than 256 pixels the middle is drawn.

    Args:
        degraded, restored, clean: uint8 `[H, W]` or `[H, W, 3]` each, at least one, the same image at the same place;
            degraded ones may be smaller. Without clean ones, which nobody has, there are two rows.
        columns: the columns of each image's prompt; the right answer is its `text`, or else its `label`.
        table: rewards of the restored images.

    Example:
        >>> image = torch.full((8, 8), 128, dtype=torch.uint8)
        >>> side_by_side([image] * 2, [image] * 2, [image] * 2, [{}, {}], RewardTable({})).shape
        torch.Size([334, 248, 3])
    """
    answers = next((entries for name, entries in table.extras.items() if name.startswith("read by ")), None)
    words = [next((str(row[name]) for name in ("text", "label") if row.get(name) is not None), "") for row in columns]
    middle = tuple(
        slice((side - _MOST) // 2, (side + _MOST) // 2) if side > _MOST else slice(None)
        for side in restored[0].shape[:2]
    )
    labels, rows, captions = [], [], []
    for name, images in zip(ROWS, (degraded, restored, clean) if clean else (degraded, restored), strict=False):
        labels.append(name if images[0].shape == restored[0].shape else "bicubic")
        rows.append([_as_large(image, like)[middle] for image, like in zip(images, restored, strict=True)])
        if name == "restored" and answers is not None:
            pairs = zip(answers, words, strict=True)
            captions.append([(answer or "-", _RIGHT if answer == word else _WRONG) for answer, word in pairs])
        elif clean and name != "clean":
            pairs = zip(rows[-1], clean, strict=True)
            captions.append([(_fidelity(image, target[middle]), "black") for image, target in pairs])
        else:
            captions.append([(word if answers is not None else "", "black") for word in words])
    return grid(rows, captions, labels, side=_SIDE)


def grid(
    rows: Sequence[Sequence[Tensor]],
    captions: Sequence[Sequence[tuple[str, Any]]],
    labels: Sequence[str] = (),
    side: int = 32,
) -> Tensor:
    """Draws rows of images, each enlarged by a whole number to some `side` pixels.

    Args:
        rows: uint8 `[H, W]` or `[H, W, 3]` each, all of one size.
        captions: the text below each image and its colour; a row may have fewer texts than images.
        labels: the name of each row, drawn on its left.
        side: the least width of an image.

    Returns:
        uint8 `[h, w, 3]`.
    """
    from PIL import Image, ImageDraw

    height, width = rows[0][0].shape[:2]
    factor, margin = max(1, -(-side // width)), _MARGIN if labels else 0
    across, down = factor * width + _GAP, factor * height + _LINE + _GAP
    canvas = Image.new("RGB", (margin + across * len(rows[0]), down * len(rows) - _GAP), "white")
    draw = ImageDraw.Draw(canvas)
    for row, images in enumerate(rows):
        top = row * down
        if labels:
            draw.text((2, top + factor * height // 2 - _LINE // 2), labels[row], fill="black")
        for place, image in enumerate(images):
            enlarged = image.repeat_interleave(factor, 0).repeat_interleave(factor, 1).numpy()
            canvas.paste(Image.fromarray(enlarged), (margin + place * across, top))
        for place, (text, colour) in enumerate(captions[row]):
            # The picture's font has no letters but these, and none that is narrower than a pixel.
            line = " ".join(text.split())[: canvas.width].encode("latin-1", "replace").decode("latin-1")
            draw.text((margin + place * across, top + factor * height + 1), line, fill=colour)
    return torch.from_numpy(np.array(canvas))


def _fidelity(image: Tensor, clean: Tensor) -> str:
    image_pixels, clean_pixels = (np.atleast_3d(pixels.numpy()).transpose(2, 0, 1) / 255 for pixels in (image, clean))
    return f"{psnr(image_pixels, clean_pixels):.1f} dB  {ssim(image_pixels, clean_pixels):.3f}"


def _as_large(image: Tensor, clean: Tensor) -> Tensor:
    if image.shape == clean.shape:
        return image
    from PIL import Image

    size = (clean.shape[1], clean.shape[0])
    return torch.from_numpy(np.array(Image.fromarray(image.numpy()).resize(size, Image.Resampling.BICUBIC)))


# Images as people and rewards see them: 8 bits, on the CPU.


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
    if not bool((images.gt(-torch.inf) & images.lt(torch.inf)).all()):
        raise ConfigError("model: the images that it makes hold NaN or infinity, which no picture can show")
    # In bfloat16 255.5 would be 256, which eight bits turn into 0: white into black.
    levels = (images.to(torch.promote_types(images.dtype, torch.float32)).clamp(0, 1) * 255 + 0.5).to(torch.uint8)
    levels = levels.cpu()
    if levels.dim() == 4 and levels.shape[1] == 1:
        return levels[:, 0]
    return levels.movedim(-3, -1).contiguous()
