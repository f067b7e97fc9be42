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
        """Joins those of consecutive prompts."""
        names = dict.fromkeys(name for part in parts for name in part.measured)
        return JudgedImages(
            {place: image for part in parts for place, image in part.shown.items()},
            RewardTable.concatenate([part.table for part in parts]),
            {name: [value for part in parts for value in part.measured.get(name, ())] for name in names},
        )

    def metrics(self, mode: str) -> dict[str, float]:
        """Computes means over all: of the rewards, called `mode/...` (see `means`), and of what else was measured."""
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
        keys: of the prompt of each image.
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


# The picture of an evaluation: the same images degraded, restored and clean, row by row; below each its distance to
# the clean one, or what was read in it.

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


def compared(
    degraded: Sequence[Tensor],
    restored: Sequence[Tensor],
    clean: Sequence[Tensor],
    columns: Sequence[Mapping[str, Any]],
    table: RewardTable,
    read: Callable[[Sequence[Tensor]], RewardTable],
) -> Tensor | None:
    """Draws images by `side_by_side`, with what a reader read in them below.

    Args:
        degraded, restored, clean: as of `side_by_side`.
        columns: of each image's prompt; the right answer is its `text`, or else its `label`.
        table: rewards of the restored images.
        read: rewards of the images of another row.
    """
    if not restored:
        return None
    answers = answers_in(table, {"degraded": degraded} | ({"clean": clean} if clean else {}), read)
    words = [next((str(row[name]) for name in ("text", "label") if row.get(name) is not None), "") for row in columns]
    return side_by_side(degraded, restored, clean, answers, words)


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
