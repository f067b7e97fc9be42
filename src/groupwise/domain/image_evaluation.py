"""Evaluations of images: how many are held at once, means over all of them, and one record an image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from groupwise.reward import RewardTable

_MOST_ELEMENTS = 2**20
_MOST_IMAGES = 1024


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
