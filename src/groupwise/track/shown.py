"""Members as trackers show them: a table of texts and numbers, and the images apart. Both trackers take these, so both
show the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_MOST_MEMBERS = 16
_LONGEST = 2000
"""Characters of a cell: a tracker is for looking, the whole is in `rollouts/`."""


def table(records: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The first records as columns and rows of text, without images.

    Args:
        records: JSON-able but for images.

    Returns:
        the columns in the order of their first appearance, and one row a record.

    Example:
        >>> table([{"prompt": "2+2", "rewards": {"correct": 1.0}}, {"prompt": "1+1", "reward": None}])
        (['prompt', 'rewards', 'reward'], [['2+2', '{"correct": 1.0}', ''], ['1+1', '', '']])
    """
    kept = records[:_MOST_MEMBERS]
    columns = list(dict.fromkeys(name for record in kept for name, value in record.items() if not is_image(value)))
    return columns, [[_cell(record.get(name)) for name in columns] for record in kept]


def images(records: Sequence[Mapping[str, Any]]) -> dict[str, list[np.ndarray]]:
    """The images of the first records by the name they have there, `[H, W, 3]` each.

    Args:
        records: some values may be images.

    Returns:
        name -> images, in the records' order.
    """
    found: dict[str, list[np.ndarray]] = {}
    for record in records[:_MOST_MEMBERS]:
        for name, value in record.items():
            if is_image(value):
                found.setdefault(name, []).append(as_rgb(value))
    return found


def is_image(value: Any) -> bool:
    """Whether a value is an image: an array or tensor.

    Args:
        value: of a record.
    """
    return hasattr(value, "shape") and hasattr(value, "dtype")


def as_rgb(image: Any) -> np.ndarray:
    """`[H, W, 3]` bytes.

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
