"""Evaluates restored images: rewards, judges, fidelity to the target, and pictures of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from groupwise.domain.protocol import Evaluation
from groupwise.reward import RewardError, Rewards, RewardTable
from groupwise_images.image_evaluation import JudgedImages, as_pictures, records, side_by_side
from groupwise_images.image_source.base import Picture
from groupwise_images.restoration.config import EvaluationConfig
from groupwise_images.restoration.network import enlarged
from groupwise_images.reward.similarity import TargetReward, psnr, ssim

MODE = "restored"
BASELINE = "bicubic"
"""The mode of the metrics of plain enlargement, where images are smaller than their targets."""
_MEASURES = {"psnr": psnr, "ssim": ssim}


def metric_names(rewards: Mapping[str, Any], scale: int = 1) -> list[str]:
    """Lists the names that `metrics` and `baseline` may give.

    Args:
        rewards: the rewards as configured, by name.
        scale: the scale of the network.

    Example:
        >>> metric_names({"read": None})
        ['restored/reward', 'restored/read', 'restored/psnr', 'restored/ssim']
    """
    names = [f"{MODE}/{name}" for name in ("reward", *rewards, *fidelity_names(rewards).values())]
    return names if scale == 1 else [*names, *(f"{BASELINE}/{name}" for name in _MEASURES)]


def fidelity_names(rewards: Mapping[str, Any]) -> dict[str, str]:
    """Names the metrics PSNR and SSIM, in addition to the rewards. A reward of the same name replaces one of them,
    unless its numbers are scaled.

    Args:
        rewards: the rewards as configured, by name.

    Example:
        >>> from groupwise_images.reward.similarity import Psnr
        >>> fidelity_names({"psnr": Psnr(scale=0.025)}), fidelity_names({"psnr": Psnr()})
        ({'psnr': 'psnr_db', 'ssim': 'ssim'}, {'ssim': 'ssim'})
    """
    scaled = [name for name in rewards if getattr(rewards[name], "scale", 1.0) != 1.0]
    return {
        name: f"{name}_db" if name in scaled else name for name in _MEASURES if name not in rewards or name in scaled
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
        block: pixels on the side of a decision; None where decisions are not blocks of pixels, and a map is one number,
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
    fidelity = {
        name: [_MEASURES[measure](output, target) for output, target in zip(restored, targets, strict=True)]
        for measure, name in names.items()
    }
    return replace(
        table,
        values={**table.values, **fidelity},
        weights={**table.weights, **dict.fromkeys(fidelity, 0.0)},
        judges=table.judges | set(fidelity),
    )


def baseline(
    degraded: Sequence[np.ndarray], targets: Sequence[np.ndarray], scale: int, rewards: Mapping[str, Any]
) -> dict[str, list[float]]:
    """Computes PSNR (dB) and SSIM of each image as bicubic enlargement gives it, at the 8 bits of files and rewards;
    by the metric's name. A reward that replaces one of the metrics measures the enlargement too.

    Args:
        degraded: fp32 `[C, H, W]` each.
        targets: fp32 `[C, scale H, scale W]` each.
        scale: the scale of the network.
        rewards: the rewards as configured, by name.
    """
    images = [_levels(enlarged(torch.from_numpy(np.ascontiguousarray(image))[None], scale)[0]) for image in degraded]
    clean = [_levels(torch.from_numpy(np.ascontiguousarray(target))) for target in targets]
    replacing = {name: reward for name, reward in rewards.items() if name not in fidelity_names(rewards)}
    measures = {
        name: reward.compared if isinstance(reward := replacing.get(name), TargetReward) else measure
        for name, measure in _MEASURES.items()
    }
    return {
        f"{BASELINE}/{name}": [measure(image, target) for image, target in zip(images, clean, strict=True)]
        for name, measure in measures.items()
    }


def _levels(image: Tensor) -> np.ndarray:
    return (image.clamp(0, 1) * 255).add(0.5).floor().numpy() / 255


def picture_list(images: Sequence[np.ndarray]) -> list[Tensor]:
    """Converts images of any sizes, fp32 `[C, H, W]`, by `as_pictures`."""
    return [as_pictures(torch.from_numpy(np.ascontiguousarray(image))[None])[0] for image in images]


@final
@dataclass(frozen=True)
class Shown:
    """One held-out image, uint8, as the network was given it, as it restored it, and its target."""

    degraded: Tensor
    restored: Tensor
    clean: Tensor


def evaluation(config: EvaluationConfig, held_out: Sequence[Picture], judged: JudgedImages) -> Evaluation:
    """Returns metrics, records and the picture of all images.

    Args:
        config: the configuration of the evaluation.
        held_out: all images that were evaluated, in order; each was restored `config.repeats` times.
        judged: the restored images; those that people see are `Shown`.
    """
    keys, numbers = [picture.key for picture in held_out for _ in range(config.repeats)], range(config.repeats)
    written = [judged.shown[place].restored for place in range(min(config.num_records, len(keys)))]
    rows = records(MODE, keys, keys, [*numbers] * len(held_out), judged.table, written, config.num_records)
    drawn, images = drawn_places(held_out, config.num_columns), {}
    if drawn:
        places = [place * config.repeats for place in drawn]
        shown = [judged.shown[place] for place in places]
        images["images"] = side_by_side(
            [image.degraded for image in shown],
            [image.restored for image in shown],
            [image.clean for image in shown],
            [held_out[place].columns for place in drawn],
            judged.table.select(places),
        )
    return Evaluation(judged.metrics(MODE), tuple(rows), images, judged.table.events)


def drawn_places(held_out: Sequence[Picture], num_columns: int) -> list[int]:
    """Lists the places of the images in the picture: the first ones of the first one's size.

    Example:
        >>> small, large = (Picture("a", np.zeros((1, side, side))) for side in (8, 9))
        >>> drawn_places([small, large, small], 12)
        [0, 2]
    """
    return [place for place, picture in enumerate(held_out) if picture.clean.shape[1:] == held_out[0].clean.shape[1:]][
        :num_columns
    ]


def shown_places(held_out: Sequence[Picture], config: EvaluationConfig) -> frozenset[int]:
    """Returns the places, among all restored images, of those that people see: in records and in the picture."""
    drawn = (place * config.repeats for place in drawn_places(held_out, config.num_columns))
    return frozenset((*range(min(config.num_records, len(held_out) * config.repeats)), *drawn))
