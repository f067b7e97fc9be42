"""Prompts read and split: those trained on, those evaluated, and images to learn from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from groupwise.config import ConfigError
from groupwise.domain.diffusion.config import DataConfig
from groupwise.domain.diffusion.source.nothing import Nothing
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
        image_prompts: the prompt of each image.
    """

    train: Sequence[Prompt]
    evaluated: Sequence[Prompt]
    images: np.ndarray | None
    image_prompts: Sequence[Prompt]


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
    num_needed = config.num_held_out + (config.num_train or 1)
    if num_needed > total:
        settings_text = f"data.num_held_out = {config.num_held_out} and data.num_train = {config.num_train or 'unset'}"
        raise ConfigError(
            f"{settings_text} need {num_needed} prompts, and the source has {total}; write smaller numbers, or give"
            " more prompts"
        )
    order = (
        np.random.default_rng(config.seed).permutation(total).tolist() if config.num_held_out else list(range(total))
    )
    held_out = [prompts[index] for index in sorted(order[: config.num_held_out])]
    # Two rows may have one text and other columns; such a row is not trained on, nor are images of held-out texts.
    held_out_texts = {prompt.columns["prompt"] for prompt in held_out}
    training_prompts = (prompts[index] for index in sorted(order[config.num_held_out :]))
    remaining = [prompt for prompt in training_prompts if prompt.columns["prompt"] not in held_out_texts]
    if len(remaining) < (config.num_train or 1):
        raise ConfigError(
            f"data.num_held_out = {config.num_held_out} leaves {len(remaining)} prompts to train on that ask something"
            " else; write a smaller number, or give more prompts"
        )
    train = remaining[: config.num_train]
    image_prompts = [] if content.of_prompt is None else [prompts[index] for index in content.of_prompt.tolist()]
    training_places = [
        place for place, prompt in enumerate(image_prompts) if prompt.columns["prompt"] not in held_out_texts
    ]
    images = content.images
    if images is not None and len(training_places) < len(image_prompts):
        images = images[training_places]
    return Splits(train, held_out or train, images, [image_prompts[place] for place in training_places])


def as_prompt(columns: Mapping[str, Any]) -> Prompt:
    """Makes a prompt with a key that depends on nothing but its columns.

    Example:
        >>> as_prompt({"prompt": "a"}).key == as_prompt({"prompt": "a"}).key != as_prompt({"prompt": "b"}).key
        True
    """
    return Prompt(
        hashlib.blake2b(json.dumps(columns, sort_keys=True).encode(), digest_size=8).hexdigest(), dict(columns)
    )
