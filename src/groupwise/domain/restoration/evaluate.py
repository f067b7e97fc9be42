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
from groupwise.reward import RewardError, Rewards, RewardTable
from groupwise.reward.images.fidelity import psnr, ssim

MODE = "restored"
FIDELITY = ("psnr", "ssim")


def metric_names(rewards: Mapping[str, Any]) -> list[str]:
    """The names that `metrics` may give.

    Args:
        rewards: as configured, by name.

    Example:
        >>> metric_names({"read": None})
        ['restored/reward', 'restored/read', 'restored/psnr', 'restored/ssim']
    """
    return [f"{MODE}/{name}" for name in ("reward", *rewards, *fidelity_names(rewards).values())]


def fidelity_names(rewards: Mapping[str, Any]) -> dict[str, str]:
    """What PSNR and SSIM are called beside the rewards: a reward of the same name takes its place, unless its numbers
    are on a scale of their own.

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
    """Rewards of restored images (uint8), which find the target as `clean`, what was restored as `degraded`, and the
    source's own columns.
    """
    names = set.intersection(*(set(picture.columns) for picture in pictures)) if pictures else set()
    columns: dict[str, Sequence[Any]] = {
        name: [picture.columns[name] for picture in pictures] for name in sorted(names)
    }
    table = rewards.score(
        [picture.key for picture in pictures], images, {**columns, "clean": clean, "degraded": degraded}, judges=judges
    )
    for name, maps in table.maps.items():
        for member, (values, image) in enumerate(zip(maps, images, strict=True)):
            if tuple(values.shape) != tuple(image.shape[:2]):
                key = pictures[member].key
                what = (
                    f"reward {name!r} gave a map of {list(values.shape)} for image {key!r} of {list(image.shape[:2])}"
                    f" pixels (member {member})"
                )
                raise RewardError(
                    f"{what}; a map has one value a pixel, [H, W]", reward=name, prompt=key, member=member
                )
    return table


def pooled(table: RewardTable, block: int | None) -> RewardTable:
    """Maps `[H, W]` of rewards as `[T]`: means over the pixels of each decision, row by row of blocks.

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
    """The table with the PSNR (dB) and SSIM of each image as judges.

    Args:
        table: rewards of the images.
        restored, targets: fp32 `[C, H, W]` each.
        names: what is measured -> what it is called; see `fidelity_names`.
    """
    measures = {"psnr": psnr, "ssim": ssim}
    new = {
        name: [measures[measure](output, target) for output, target in zip(restored, targets, strict=True)]
        for measure, name in names.items()
    }
    return replace(
        table,
        values={**table.values, **new},
        weights={**table.weights, **dict.fromkeys(new, 0.0)},
        judges=table.judges | set(new),
    )


def metrics(table: RewardTable) -> dict[str, float]:
    """Means over all images, called `restored/...`; see `measured.means`."""
    return measured.means(MODE, table)


def records(
    pictures: Sequence[Picture], numbers: Sequence[int], table: RewardTable, images: Sequence[Tensor], limit: int
) -> list[Mapping[str, Any]]:
    """One record an image; see `measured.records`."""
    keys = [picture.key for picture in pictures]
    return measured.records(MODE, keys, keys, numbers, table, images, limit)


def each_as_picture(images: Sequence[np.ndarray]) -> list[Tensor]:
    """Images of any sizes, fp32 `[C, H, W]`, as `as_pictures` gives them."""
    return [as_pictures(torch.from_numpy(np.ascontiguousarray(image))[None])[0] for image in images]
