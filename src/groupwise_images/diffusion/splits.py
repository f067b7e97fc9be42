"""Prompts read and split: those trained on, those evaluated, and images to learn from."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from groupwise.config import ConfigError
from groupwise.domain.exported import filled_columns
from groupwise.domain.protocol import Prompt
from groupwise.streams import Streams
from groupwise_images.diffusion.config import DataConfig, DiffusionConfig
from groupwise_images.diffusion.denoiser import Denoiser
from groupwise_images.diffusion.image_prompts import ImagePrompts
from groupwise_images.diffusion.source import ImagePairs, Nothing


@final
@dataclass(frozen=True)
class Splits:
    """Prompts by their use.

    Args:
        train: prompts trained on.
        evaluated: prompts evaluated: those held out, or the training prompts where none is.
        images: `[N, C, H, W]` in [0, 1], or None.
        image_prompts: the prompt of each image.
        pictures: where prompts are images; None where they are texts.
    """

    train: Sequence[Prompt]
    evaluated: Sequence[Prompt]
    images: np.ndarray | None
    image_prompts: Sequence[Prompt]
    pictures: ImagePrompts | None = None

    @cached_property
    def _columns_by_text(self) -> dict[str, Mapping[str, Any]]:
        return {prompt.columns["prompt"]: prompt.columns for prompt in (*self.evaluated, *self.train)}

    def shown(self, prompts: Sequence[Prompt], streams: Streams, step: int) -> list[Prompt]:
        """Returns prompts with what the model is shown of them: their images, where prompts are images.

        Args:
            streams, step: keys of what is drawn for the step.
        """
        return list(prompts) if self.pictures is None else self.pictures.shown(prompts, streams, step)

    def with_columns(self, prompt: Prompt, denoiser: Denoiser) -> Prompt:
        """Adds the columns of the source's prompt with the same text to a prompt that was typed by hand; where prompts
        are images, one that is not of the source is a file.

        Raises:
            ConfigError: the model needs a column that nobody gave, or there is no such image.
        """
        text = prompt.columns.get("prompt")
        source_columns = self._columns_by_text.get(text, {}) if isinstance(text, str) else {}
        if self.pictures is not None:
            if source_columns:
                return Prompt(str(text), {**source_columns, **prompt.columns})
            return self.pictures.opened(str(text), denoiser)
        if source_columns.keys() - prompt.columns.keys():
            return Prompt(prompt.key, {**source_columns, **prompt.columns})
        denoiser.check([prompt.columns])
        return prompt

    def contents(self, prompts: Sequence[Prompt]) -> frozenset[str]:
        """Returns the identities of prompts: their texts, or a hash of each image, because an image may occur under two
        names.
        """
        if self.pictures is not None:
            return self.pictures.contents(prompts)
        return frozenset(prompt.columns["prompt"] for prompt in prompts)

    def remarks(self, config: DiffusionConfig) -> list[str]:
        """Returns sentences on images that were left out, and on guidance that uses something the training never
        teaches.

        Args:
            config: the configuration whose guidance, where it has demonstrations, is by a model that they are to teach.
        """
        remarks = [] if self.pictures is None else list(self.pictures.remarks)
        guided = config.sampling_schedule or any(
            g not in (None, 1) for g in (config.guidance, config.evaluation.guidance)
        )
        if guided and config.demonstrations is not None and config.demonstrations.unconditional_share == 0:
            remarks.append(
                "guidance: the model is guided away from what it draws without a prompt, and no demonstration is shown"
                " without one; unless an earlier run taught it, write domain.demonstrations.unconditional_share = 0.1"
            )
        return remarks

    @property
    def columns(self) -> list[str]:
        """Names of the columns that rewards find."""
        if self.pictures is not None:
            return self.pictures.columns
        return [name for prompt in self.train[:1] for name in prompt.columns]


def split(config: DataConfig) -> Splits:
    """Reads the source and divides its prompts, by a permutation that `seed` fixes where some are held out.

    Raises:
        ConfigError: fewer prompts than are asked for.
    """
    if isinstance(config.source, Nothing):
        return Splits((), (), None, ())
    if isinstance(config.source, ImagePairs):
        return _images(config.source, config)
    content = config.source.read()
    # The key is that of the row as it is written, so that a column of other rows does not change it.
    filled = zip(content.prompts, filled_columns(content.prompts), strict=True)
    prompts = [Prompt(as_prompt(row).key, columns) for row, columns in filled]
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


def _images(source: ImagePairs, config: DataConfig) -> Splits:
    if config.num_held_out:
        raise ConfigError(
            f"data.num_held_out = {config.num_held_out}: images are held out by their source; write 0, and"
            " data.source.images.num_held_out or num_train"
        )
    pictures = ImagePrompts(source, config.num_train)
    if len(pictures.train) < (config.num_train or 1):
        raise ConfigError(
            f"data.num_train = {config.num_train}: the source has {len(pictures.train)} images to train on; write at"
            f" most {len(pictures.train)}"
        )
    return Splits(pictures.train, pictures.evaluated, None, (), pictures)


def as_prompt(columns: Mapping[str, Any]) -> Prompt:
    """Makes a prompt with a key that depends on nothing but its columns.

    Example:
        >>> as_prompt({"prompt": "a"}).key == as_prompt({"prompt": "a"}).key != as_prompt({"prompt": "b"}).key
        True
    """
    return Prompt(
        hashlib.blake2b(json.dumps(columns, sort_keys=True).encode(), digest_size=8).hexdigest(), dict(columns)
    )
