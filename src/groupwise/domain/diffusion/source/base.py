"""The contents of a source: prompts as columns, and images with their prompts to learn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    import numpy as np


@final
@dataclass(frozen=True)
class Content:
    """The prompts and images of a source.

    Args:
        prompts: columns of each prompt, `prompt` (a text) among them.
        images: `[N, C, H, W]` fp32 in [0, 1] to learn from by supervision; None where there are none.
        of_prompt: `[N]`, the place in `prompts` of each image's prompt.
    """

    prompts: Sequence[Mapping[str, Any]]
    images: np.ndarray | None = None
    of_prompt: np.ndarray | None = None
