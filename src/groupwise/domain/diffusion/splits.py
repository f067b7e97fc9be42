"""Prompts read and split: what is trained on, what is evaluated, and images to learn from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from groupwise.config import ConfigError
from groupwise.domain.diffusion.config import DataConfig
from groupwise.domain.diffusion.source.base import Nothing
from groupwise.domain.protocol import Prompt

if TYPE_CHECKING:
    import numpy as np


@final
@dataclass(frozen=True)
class Splits:
    """Prompts by their use.

    Args:
        train: prompts trained on.
        evaluated: prompts evaluated: those held out, or the training prompts where none is.
        images: `[N, C, H, W]` in [0, 1], or None.
        shown: the prompt of each image.
    """

    train: Sequence[Prompt]
    evaluated: Sequence[Prompt]
    images: np.ndarray | None
    shown: Sequence[Prompt]


def split(config: DataConfig) -> Splits:
    """Reads the source and divides its prompts, by a permutation that `seed` fixes where some are held out.

    Raises:
        ConfigError: fewer prompts than are asked for.
    """
    import numpy as np

    if isinstance(config.source, Nothing):
        return Splits((), (), None, ())
    content = config.source.read()
    prompts = [as_prompt(columns) for columns in content.prompts]
    total = len(prompts)
    wanted = config.num_held_out + (config.num_train or 1)
    if wanted > total:
        asked = f"data.num_held_out = {config.num_held_out} and data.num_train = {config.num_train or 'unset'}"
        raise ConfigError(
            f"{asked} need {wanted} prompts, and the source has {total}; write smaller numbers, or give more prompts"
        )
    order = (
        np.random.default_rng(config.seed).permutation(total).tolist() if config.num_held_out else list(range(total))
    )
    held_out = [prompts[index] for index in sorted(order[: config.num_held_out])]
    # Two rows may ask the same in other columns; neither they nor the images of what is held out are learnt from.
    held = {prompt.columns["prompt"] for prompt in held_out}
    rest = [
        prompts[index] for index in sorted(order[config.num_held_out :]) if prompts[index].columns["prompt"] not in held
    ]
    if len(rest) < (config.num_train or 1):
        raise ConfigError(
            f"data.num_held_out = {config.num_held_out} leaves {len(rest)} prompts to train on that ask something else;"
            " write a smaller number, or give more prompts"
        )
    train = rest[: config.num_train]
    shown = [] if content.of_prompt is None else [prompts[index] for index in content.of_prompt.tolist()]
    kept = [place for place, prompt in enumerate(shown) if prompt.columns["prompt"] not in held]
    images = content.images if content.images is None or len(kept) == len(shown) else content.images[kept]
    return Splits(train, held_out or train, images, [shown[place] for place in kept])


def as_prompt(columns: Mapping[str, Any]) -> Prompt:
    """A prompt with a key that depends on nothing but its columns.

    Example:
        >>> as_prompt({"prompt": "a"}).key == as_prompt({"prompt": "a"}).key != as_prompt({"prompt": "b"}).key
        True
    """
    return Prompt(
        hashlib.blake2b(json.dumps(columns, sort_keys=True).encode(), digest_size=8).hexdigest(), dict(columns)
    )
