"""An image among the columns of a prompt."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from groupwise.domain.pictures import as_pictures

if TYPE_CHECKING:
    import numpy as np


@final
@dataclass(frozen=True)
class PromptImage:
    """An image that a model is conditioned on (the column `degraded`), or its target (`clean`).

    Args:
        pixels: fp32 `[C, H, W]`, white at 1; noise may leave [0, 1].

    Example:
        >>> import numpy
        >>> PromptImage(numpy.full((1, 1, 2), 0.2, "float32")).picture.tolist()
        [[51, 51]]
    """

    pixels: np.ndarray

    @cached_property
    def content(self) -> str:
        """A hash of the pixels, under which what is encoded of them is cached."""
        return hashlib.blake2b(repr(self.pixels.shape).encode() + self.pixels.tobytes(), digest_size=16).hexdigest()

    @cached_property
    def picture(self) -> Tensor:
        """The image as rewards and people see it: uint8 `[H, W]` or `[H, W, 3]`."""
        return as_pictures(torch.from_numpy(self.pixels)[None])[0]


def without_images(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of a prompt that can be printed.

    Example:
        >>> import numpy
        >>> without_images({"prompt": "a.png", "degraded": PromptImage(numpy.zeros((1, 1, 1), "float32"))})
        {'prompt': 'a.png'}
    """
    return {name: value for name, value in columns.items() if not isinstance(value, PromptImage)}
