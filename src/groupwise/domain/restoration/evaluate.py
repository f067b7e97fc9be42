"""Evaluates restored images: rewards, judges, fidelity to the target, and pictures of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from groupwise.domain import image_evaluation
from groupwise.domain.image_source.base import Picture
from groupwise.domain.pictures import as_pictures
from groupwise.domain.restoration.enlarge import enlarged
from groupwise.reward import RewardError, Rewards, RewardTable
from groupwise.reward.images.fidelity import psnr, ssim

MODE = "restored"
BASELINE = "bicubic"
"""The mode of the metrics of plain enlargement, where images are smaller than their targets."""
FIDELITY = ("psnr", "ssim")


def metric_names(rewards: Mapping[str, Any], scale: int = 1) -> list[str]:
    """Lists the names that `metrics` and `baseline` may give.

    Args:
        rewards: as configured, by name.
        scale: of the network.

    Example:
        >>> metric_names({"read": None})
        ['restored/reward', 'restored/read', 'restored/psnr', 'restored/ssim']
    """
    names = [f"{MODE}/{name}" for name in ("reward", *rewards, *fidelity_names(rewards).values())]
    return names if scale == 1 else [*names, *(f"{BASELINE}/{name}" for name in FIDELITY)]


def fidelity_names(rewards: Mapping[str, Any]) -> dict[str, str]:
    """Names PSNR and SSIM beside the rewards: a reward of the same name takes the place of one, unless its numbers are
    scaled.

    Args:
        rewards: as configured, by name.

    Example:
        >>> from groupwise.reward.images.psnr import Psnr
        >>> fidelity_names({"psnr": Psnr(scale=0.025)}), fidelity_names({"psnr": Psnr()})
        ({'psnr': 'psnr_db', 'ssim': 'ssim'}, {'ssim': 'ssim'})
    """
    scaled = [name for name in rewards if getattr(rewards[name], "scale", 1.0) != 1.0]
    return {
        name: f"{name}_db" if name in scaled else name for name in FIDELITY if name not in rewards or name in scaled
    }


def score(
    rewards: Rewards,
    pictures: Sequence[Picture],
    images: Sequence[Tensor],
    clean: Sequence[Tensor],
    degraded: Sequence[Tensor],
    *,
    judges: bool,
) -> RewardTable:
    """Computes rewards of restored images (uint8); rewards read the target as `clean`, the degraded image as
    `degraded`, and the source's own columns.
    """
    table = rewards.score(
        [picture.key for picture in pictures],
        images,
        {**columns(pictures), "clean": clean, "degraded": degraded},
        judges=judges,
    )
    for name, maps in table.maps.items():
        for member, (values, image) in enumerate(zip(maps, images, strict=True)):
            if tuple(values.shape) != tuple(image.shape[:2]):
                key = pictures[member].key
                problem = (
                    f"reward {name!r} gave a map of {list(values.shape)} for image {key!r} of {list(image.shape[:2])}"
                    f" pixels (member {member})"
                )
                raise RewardError(
                    f"{problem}; a map has one value a pixel, [H, W]", reward=name, prompt=key, member=member
                )
    return table


def columns(pictures: Sequence[Picture]) -> dict[str, Sequence[Any]]:
    """Collects the source's columns that all pictures have, one entry a picture."""
    names = set.intersection(*(set(picture.columns) for picture in pictures)) if pictures else set()
    return {name: [picture.columns[name] for picture in pictures] for name in sorted(names)}


def pooled(table: RewardTable, block: int | None) -> RewardTable:
    """Averages maps `[H, W]` of rewards over the pixels of each decision, `[T]`, row by row of blocks.

    Args:
        table: with maps of pixels, or none.
        block: pixels on the side of a decision; None where decisions are no blocks of pixels, and a map is one number,
            its mean.
    """
    if block is None or not table.maps:
        return replace(table, maps={})
    maps = {}
    for name, values in table.maps.items():
        stacked = torch.from_numpy(np.stack(values)).double()
        maps[name] = list(functional.avg_pool2d(stacked[:, None], block).flatten(1).numpy())
    return replace(table, maps=maps)


def with_fidelity(
    table: RewardTable, restored: Sequence[np.ndarray], targets: Sequence[np.ndarray], names: Mapping[str, str]
) -> RewardTable:
    """Adds the PSNR (dB) and SSIM of each image to the table, as judges.

    Args:
        table: rewards of the images.
        restored, targets: fp32 `[C, H, W]` each.
        names: measure (`psnr`, `ssim`) -> its name in the table; see `fidelity_names`.
    """
    measures = {"psnr": psnr, "ssim": ssim}
    fidelity = {
        name: [measures[measure](output, target) for output, target in zip(restored, targets, strict=True)]
        for measure, name in names.items()
    }
    return replace(
        table,
        values={**table.values, **fidelity},
        weights={**table.weights, **dict.fromkeys(fidelity, 0.0)},
        judges=table.judges | set(fidelity),
    )


def metrics(table: RewardTable) -> dict[str, float]:
    """Computes means over all images, called `restored/...`; see `image_evaluation.means`."""
    return image_evaluation.means(MODE, table)


def baseline(degraded: Sequence[np.ndarray], targets: Sequence[np.ndarray], scale: int) -> list[tuple[float, float]]:
    """Computes PSNR (dB) and SSIM of each image as bicubic enlargement gives it, at the 8 bits of files and rewards.

    Args:
        degraded: fp32 `[C, H, W]` each.
        targets: fp32 `[C, scale H, scale W]` each.
        scale: of the network.
    """
    images = [_levels(enlarged(torch.from_numpy(np.ascontiguousarray(image))[None], scale)[0]) for image in degraded]
    clean = [_levels(torch.from_numpy(np.ascontiguousarray(target))) for target in targets]
    return [(psnr(image, target), ssim(image, target)) for image, target in zip(images, clean, strict=True)]


def _levels(image: Tensor) -> np.ndarray:
    return (image.clamp(0, 1) * 255).add(0.5).floor().numpy() / 255


def records(
    pictures: Sequence[Picture], numbers: Sequence[int], table: RewardTable, images: Sequence[Tensor], limit: int
) -> list[Mapping[str, Any]]:
    """Writes one record an image; see `image_evaluation.records`."""
    keys = [picture.key for picture in pictures]
    return image_evaluation.records(MODE, keys, keys, numbers, table, images, limit)


def picture_list(images: Sequence[np.ndarray]) -> list[Tensor]:
    """Converts images of any sizes, fp32 `[C, H, W]`, by `as_pictures`."""
    return [as_pictures(torch.from_numpy(np.ascontiguousarray(image))[None])[0] for image in images]
