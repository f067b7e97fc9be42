"""What became of images: rewards, judges, fidelity to the target, and pictures of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from groupwise.domain import measured
from groupwise.domain.pictures import as_pictures
from groupwise.domain.restoration.source.base import Picture
from groupwise.reward import Rewards, RewardTable
from groupwise.reward.fidelity import psnr, ssim

MODE = "restored"
FIDELITY = ("psnr", "ssim")


def metric_names(rewards: Sequence[str]) -> list[str]:
    """The names that `metrics` may give.

    Example:
        >>> metric_names(["read"])
        ['restored/reward', 'restored/read', 'restored/psnr', 'restored/ssim']
    """
    return [f"{MODE}/{name}" for name in ("reward", *rewards, *(name for name in FIDELITY if name not in rewards))]


def score(
    rewards: Rewards, pictures: Sequence[Picture], images: Sequence[Tensor], clean: Sequence[Tensor], degraded: Sequence[Tensor], *, judges: bool
) -> RewardTable:
    """Rewards of restored images (uint8), which find the target as `clean`, what was restored as `degraded`, and the source's own columns."""
    names = set.intersection(*(set(picture.columns) for picture in pictures)) if pictures else set()
    columns: dict[str, Sequence[Any]] = {name: [picture.columns[name] for picture in pictures] for name in sorted(names)}
    return rewards.score([picture.key for picture in pictures], images, {**columns, "clean": clean, "degraded": degraded}, judges=judges)


def pooled(table: RewardTable, block: int | None) -> RewardTable:
    """Maps `[H, W]` of rewards as `[T]`: means over the pixels of each decision, row by row of blocks.

    Args:
        table: with maps of pixels, or none.
        block: pixels on the side of a decision; None where decisions are no blocks of pixels, and a map is one number, its mean.
    """
    if block is None or not table.maps:
        return replace(table, maps={})
    maps = {}
    for name, values in table.maps.items():
        stacked = torch.from_numpy(np.stack(values)).double()
        maps[name] = list(functional.avg_pool2d(stacked[:, None], block).flatten(1).numpy())
    return replace(table, maps=maps)


def with_fidelity(table: RewardTable, restored: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> RewardTable:
    """The table with `psnr` (dB) and `ssim` of each image as judges, unless rewards of those names are there."""
    own: dict[str, list[float]] = {"psnr": [], "ssim": []}
    for output, target in zip(restored, targets, strict=True):
        own["psnr"].append(psnr(output, target))
        own["ssim"].append(ssim(output, target))
    new = {name: values for name, values in own.items() if name not in table.values}
    return replace(table, values={**table.values, **new}, weights={**table.weights, **dict.fromkeys(new, 0.0)}, judges=table.judges | set(new))


def metrics(table: RewardTable) -> dict[str, float]:
    """Means over all images, called `restored/...`; see `measured.means`."""
    return measured.means(MODE, table)


def records(pictures: Sequence[Picture], numbers: Sequence[int], table: RewardTable, images: Sequence[Tensor], limit: int) -> list[Mapping[str, Any]]:
    """One record an image; see `measured.records`."""
    keys = [picture.key for picture in pictures]
    return measured.records(MODE, keys, keys, numbers, table, images, limit)


def shown(degraded: Sequence[Tensor], restored: Sequence[Tensor], clean: Sequence[Tensor], repeats: int, num_columns: int) -> dict[str, Tensor]:
    """A picture of the first images of one size: rows degraded, restored, clean."""
    places = [place for place in range(0, len(clean), repeats) if clean[place].shape == clean[0].shape][:num_columns]
    if not places:
        return {}
    factor = max(1, -(-48 // clean[0].shape[0]))
    rows = []
    for images in (degraded, restored, clean):
        large = [images[place].repeat_interleave(factor, 0).repeat_interleave(factor, 1) for place in places]
        line = torch.full((large[0].shape[0], 2, *large[0].shape[2:]), 255, dtype=torch.uint8)
        rows.append(torch.cat([part for image in large for part in (image, line)][:-1], dim=1))
    gap = torch.full((2, *rows[0].shape[1:]), 255, dtype=torch.uint8)
    return {"images": torch.cat([rows[0], gap, rows[1], gap, rows[2]])}


def each_as_picture(images: Sequence[np.ndarray]) -> list[Tensor]:
    """Images of any sizes, fp32 `[C, H, W]`, as `as_pictures` gives them."""
    return [as_pictures(torch.from_numpy(np.ascontiguousarray(image))[None])[0] for image in images]
