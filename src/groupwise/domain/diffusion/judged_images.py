"""What an evaluation keeps of its images: numbers of all, and the first ones for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from groupwise.domain.pass_sizes import MOST_ROWS
from groupwise.reward import RewardTable

_MOST_ELEMENTS = 2**20
_MOST_IMAGES = 1024


@final
@dataclass(frozen=True)
class JudgedImages:
    """The images of some prompts, judged.

    Args:
        shown: uint8 `[N, H, W(, 3)]`, those of the first prompts, which people see.
        table: rewards of all images.
        diversity: of the images of each prompt; empty where a prompt has one.
    """

    shown: Tensor
    table: RewardTable
    diversity: Sequence[float]

    @staticmethod
    def concatenate(parts: Sequence[JudgedImages]) -> JudgedImages:
        """Joins those of consecutive prompts."""
        return JudgedImages(
            torch.cat([part.shown for part in parts]),
            RewardTable.concatenate([part.table for part in parts]),
            [value for part in parts for value in part.diversity],
        )


def prompts_at_once(num_images: int, elements: int) -> int:
    """Returns the number of prompts whose images are drawn and judged before they are let go: of at most 1,024 images,
    fewer where they are large, and no fewer than fill a pass.

    Args:
        num_images: images a prompt.
        elements: numbers in a latent.

    Example:
        >>> prompts_at_once(8, 64), prompts_at_once(8, 4 * 64 * 64), prompts_at_once(100, 2**20)
        (128, 8, 1)
    """
    return max(1, min(_MOST_IMAGES, max(MOST_ROWS, _MOST_ELEMENTS // elements)) // num_images)
