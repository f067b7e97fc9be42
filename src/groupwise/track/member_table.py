"""The members of a step as a table of texts and numbers, and their images beside it. TensorBoard and Weights & Biases
show the same table and the same images.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_MOST_MEMBERS = 16
_LONGEST = 2000
"""The most characters of a cell: `rollouts/` has the full text."""


def table(records: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Lays out the first records as columns and rows of text, without images.

    Args:
        records: JSON-able but for images.

    Returns:
        the columns in the order of their first appearance, and one row a record.

    Example:
        >>> table([{"prompt": "2+2", "rewards": {"correct": 1.0}}, {"prompt": "1+1", "reward": None}])
        (['prompt', 'rewards', 'reward'], [['2+2', '{"correct": 1.0}', ''], ['1+1', '', '']])
    """
    members = records[:_MOST_MEMBERS]
    columns = list(dict.fromkeys(name for record in members for name, value in record.items() if not is_image(value)))
    return columns, [[_cell(record.get(name)) for name in columns] for record in members]


def images(records: Sequence[Mapping[str, Any]]) -> dict[str, list[np.ndarray]]:
    """Collects the images of the first records by the name of their field, `[H, W, 3]` each.

    Args:
        records: some values may be images.

    Returns:
        name -> images, in the records' order.
    """
    images_by_field: dict[str, list[np.ndarray]] = {}
    for record in records[:_MOST_MEMBERS]:
        for name, value in record.items():
            if is_image(value):
                images_by_field.setdefault(name, []).append(as_rgb(value))
    return images_by_field


def is_image(value: Any) -> bool:
    """Returns whether a value of a record is an image: an array or tensor."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def as_rgb(image: Any) -> np.ndarray:
    """Converts an image to `[H, W, 3]` bytes.

    Args:
        image: `uint8`, `[H, W]` or `[H, W, 3]`.

    Example:
        >>> as_rgb(np.zeros((2, 3), dtype=np.uint8)).shape
        (2, 3, 3)
    """
    array = np.asarray(image.cpu() if hasattr(image, "cpu") else image)
    return array if array.ndim == 3 else np.repeat(array[:, :, None], 3, axis=2)


def _cell(value: Any) -> str:
    text = (
        "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    )
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."
