"""The images of a source as prompts: named by their texts, degraded where they are shown to the model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from groupwise.checkpoint import content_key
from groupwise.config import ConfigError
from groupwise.domain.protocol import Prompt
from groupwise.streams import Streams
from groupwise_images.diffusion.denoiser import Condition, Denoiser
from groupwise_images.diffusion.model import ModelConfig, Scratch
from groupwise_images.diffusion.pipeline_adapter import INSTRUCTION, PromptImage
from groupwise_images.diffusion.source import ImagePairs
from groupwise_images.image_evaluation import JudgedImages, side_by_side
from groupwise_images.image_source.base import Picture, UnreadableImage, as_float, read_image
from groupwise_images.repeats import check_repeats

IMAGES = "data.source.images"
"""The key of the images, for errors."""


@final
class ImagePrompts:
    """Training and held-out images of a source as prompts.

    The text of a prompt, and its key, is the image's name; further degradations of a held-out image have a number after
    it. Images are added by `shown`, so that a long list of prompts holds none.

    Args:
        source: images and degradation.
        num_train: images trained on; None takes all that are not held out.

    Raises:
        ConfigError: images that cannot be read, or a degradation that cannot be repeated.
    """

    def __init__(self, source: ImagePairs, num_train: int | None) -> None:
        self._source = source
        pictures = source.images.read(IMAGES)
        self.pictures: Sequence[Picture] = pictures.train[:num_train]
        self.held_out: Sequence[Picture] = pictures.held_out
        self.remarks: Sequence[str] = pictures.remarks
        if source.degradation is not None:
            check_repeats(source.degradation, as_float(self.pictures[0].clean))
        self._asked = {} if source.instruction is None else {INSTRUCTION: source.instruction}
        self.train = [self._prompt(picture, 0) for picture in self.pictures]
        self.evaluated = [
            self._prompt(picture, number) for number in range(source.repeats) for picture in self.held_out
        ]
        self.demonstrated = [
            prompt for prompt, picture in zip(self.train, self.pictures, strict=True) if picture.has_target
        ]
        self._has_targets = any(picture.has_target for picture in (*self.pictures, *self.held_out))
        self._training = {picture.key: picture for picture in self.pictures}
        self._evaluated = {
            _name(picture, number): (picture, number) for number in range(source.repeats) for picture in self.held_out
        }

    @property
    def columns(self) -> list[str]:
        """Names of the columns of a training prompt that is shown."""
        return list(self.shown(self.train[:1], Streams(0), 0)[0].columns)

    def shown(
        self, prompts: Sequence[Prompt], streams: Streams, step: int, numbers: Sequence[int] | None = None
    ) -> list[Prompt]:
        """Adds to prompts the image that the model is conditioned on (`degraded`) and its target (`clean`), None
        for an image without one; without the column where no image has one.

        Args:
            prompts: the prompts of the source; one that has its image stays as it is.
            streams, step: keys of the degradations where they are fresh; held-out images are always degraded the same
                way.
            numbers: further keys of the degradations, one a prompt.
        """
        numbers = [0] * len(prompts) if numbers is None else numbers
        return [
            prompt if "degraded" in prompt.columns else self._shown(prompt, streams, step, number)
            for prompt, number in zip(prompts, numbers, strict=True)
        ]

    @staticmethod
    def described(prompt: Prompt) -> dict[str, Any]:
        """Returns the images and the instruction of a prompt, for records that people read."""
        images = {name: value.picture for name, value in prompt.columns.items() if isinstance(value, PromptImage)}
        words = {name: prompt.columns[name] for name in (INSTRUCTION,) if name in prompt.columns}
        return words | images

    def targets(self, prompts: Sequence[Prompt]) -> np.ndarray:
        """Returns the targets `[N, C, H, W]` of training prompts, fp32 in [0, 1]."""
        return np.stack([as_float(self._training[prompt.key].clean) for prompt in prompts])

    def contents(self, prompts: Sequence[Prompt]) -> frozenset[str]:
        """Returns a hash of the target of each prompt."""
        return frozenset(
            self._evaluated[prompt.key][0].content
            if prompt.key in self._evaluated
            else self._training[prompt.key].content
            for prompt in prompts
        )

    def check(self, denoiser: Denoiser, model: ModelConfig) -> None:
        """Refuses images whose size differs from that of the images that the model draws or is conditioned on. Also
        refuses an instruction that is given in two places, or for some images only.

        Args:
            denoiser: the model.
            model: the configuration that names it.

        Raises:
            ConfigError: names the image, its size and the model's; or the image without words.
        """
        if denoiser.condition_shape is None:
            channels, (height, width) = self._source.images.channels, self.pictures[0].clean.shape[1:]
            raise ConfigError(
                f"data.source.kind = 'image_pairs': this model is conditioned on no image; for these write model.kind ="
                f" 'scratch' with shape.sample_size = [{height}, {width}], shape.in_channels = {2 * channels} and"
                f" shape.out_channels = {channels}: the channels of the image are concatenated to those that are drawn;"
                " or give a pipeline that is asked by an image"
            )
        for picture in (*self.pictures, *self.held_out):
            degraded, name = picture.clean if picture.degraded is None else picture.degraded, picture.file
            name = name or repr(picture.key)
            remedy = _remedy(degraded, denoiser, model)
            check_size(f"{IMAGES}: image {name}", degraded, denoiser.condition_shape, remedy)
            if picture.has_target and picture.clean.shape != denoiser.image_shape:
                raise ConfigError(
                    f"{IMAGES}: the target of {name} is {list(picture.clean.shape)} (channels, height, width), and the"
                    f" model draws {list(denoiser.image_shape)}; write model.shape.out_channels = {len(picture.clean)},"
                    " or convert the image"
                )
            if self._asked and INSTRUCTION in picture.columns:
                raise ConfigError(
                    f"data.source.instruction: image {name} has a column {INSTRUCTION!r} of its own; leave one of the"
                    " two out"
                )
        # The check of the words does not depend on the image, so the first degraded image serves all prompts.
        shown = self.shown(self.train[:1], Streams(0), 0)[0].columns["degraded"]
        denoiser.check([{**prompt.columns, "degraded": shown} for prompt in (*self.train, *self.evaluated)])

    def opened(self, text: str, denoiser: Denoiser) -> Prompt:
        """Makes a prompt of an image file, for what a person typed.

        Args:
            text: path of the file; for a pipeline that is asked in words too, `FILE: WORDS`.
            denoiser: gives the size.

        Raises:
            ConfigError: no such file, no image, or one of another size; or no words where some are needed.
        """
        name, _, words = (text, "", "") if Path(text).is_file() else text.partition(": ")
        file, shape = Path(name), denoiser.condition_shape
        if shape is None or not file.is_file():
            raise ConfigError(
                f"prompt {text!r} is neither an image of data.source nor an image file; write the name of one, for"
                f" example {self.evaluated[0].key!r}, or a path"
            )
        try:
            pixels = read_image(file, self._source.images.channels, "prompt", trained=True)
        except UnreadableImage as error:
            raise ConfigError(f"prompt {text!r} cannot be read ({error}); give another image file") from error
        check_size(f"prompt {text!r}", pixels, shape)
        asked = {INSTRUCTION: words} if words else self._asked
        columns = {"prompt": text, **asked, "degraded": PromptImage(as_float(pixels))}
        return Prompt(text, columns)

    def _prompt(self, picture: Picture, number: int) -> Prompt:
        name = _name(picture, number)
        return Prompt(name, {**picture.columns, "prompt": name, **self._asked})

    def _shown(self, prompt: Prompt, streams: Streams, step: int, number: int) -> Prompt:
        if prompt.key in self._evaluated:
            picture, number = self._evaluated[prompt.key]
            source, key = Streams(self._source.seed), ("evaluate", number)
        else:
            picture = self._training[prompt.key]
            always = (Streams(self._source.seed), ("degradation", 0, 0))
            source, key = (streams, ("degradation", step, number)) if self._source.fresh else always
        clean = as_float(picture.clean)
        if picture.degraded is not None:
            degraded = as_float(picture.degraded)
        else:
            assert self._source.degradation is not None
            degraded = self._source.degradation(clean, source.numpy("degrade", picture.key, *key))
        # Rewards get the columns that all images of a batch have.
        target = {"clean": PromptImage(clean) if picture.has_target else None} if self._has_targets else {}
        return Prompt(prompt.key, {**prompt.columns, "degraded": PromptImage(degraded), **target})


def check_size(name: str, image: np.ndarray, condition_shape: Sequence[int], remedy: str = "") -> None:
    """Refuses an image of another size than the model is conditioned on.

    Args:
        name: the name of the image, for the message.
        image: `[C, H, W]`.
        condition_shape: of the model.
        remedy: a further one, where the model can be made to fit.

    Raises:
        ConfigError: names both sizes.

    Example:
        >>> check_size("a.png", np.zeros((1, 8, 8)), (1, 8, 8))
    """
    if image.shape != tuple(condition_shape):
        raise ConfigError(
            f"{name} is {list(image.shape)} (channels, height, width), and the model is conditioned on"
            f" {list(condition_shape)}; resize or convert the image{remedy}"
        )


def _remedy(image: np.ndarray, denoiser: Denoiser, model: ModelConfig) -> str:
    """Returns what makes a model, or what is read of a file, fit an image."""
    channels, *sides = image.shape
    if isinstance(model, Scratch):
        drawn = denoiser.latent_shape[0]
        return (
            f", or write model.shape.sample_size = {sides} and model.shape.in_channels = {drawn + channels}: {drawn}"
            f" that are drawn and {channels} of the image"
        )
    if denoiser.condition_shape is not None and channels != denoiser.condition_shape[0]:
        return f", or write {IMAGES}.channels = {denoiser.condition_shape[0]}"
    return "" if denoiser.image_shape == denoiser.latent_shape else f", or write model.size = {sides}"


def _name(picture: Picture, number: int) -> str:
    return f"{picture.key}#{number}" if number else picture.key


# Encoded prompts: each is encoded once, by itself, so that it has the same bits whatever it is asked with and no pass
# of the text encoders holds more than one prompt.

MOST_BYTES = 2**28
"""Bytes of encoded prompts that are kept."""

_Tensors = dict[str, Tensor]


@final
class EncodedPrompts:
    """The prompts of a run as conditions of a denoiser. Those used last are kept.

    Args:
        denoiser: encodes them.
    """

    def __init__(self, denoiser: Denoiser) -> None:
        self._denoiser = denoiser
        self._entries: OrderedDict[str, Condition] = OrderedDict()
        self._num_bytes = 0

    def of(self, prompts: Sequence[Prompt]) -> PromptConditions:
        """Returns the conditions of prompts, which are encoded where a pass asks for them."""
        return PromptConditions(self, prompts)

    @torch.no_grad()
    def entry(self, prompt: Prompt) -> Condition:
        """Returns the condition of one prompt, one row."""
        # A target is not part of what is encoded, and an image is known by its content.
        contents = {
            name: value.content if isinstance(value, PromptImage) else value
            for name, value in prompt.columns.items()
            if not (name == "clean" and (value is None or isinstance(value, PromptImage)))
        }
        key = content_key(contents)
        if key not in self._entries:
            self._entries[key] = self._denoiser.encode([dict(prompt.columns)])
            self._num_bytes += _num_bytes(self._entries[key])
        self._entries.move_to_end(key)
        while self._num_bytes > MOST_BYTES and len(self._entries) > 1:
            _, oldest = self._entries.popitem(last=False)
            self._num_bytes -= _num_bytes(oldest)
        return self._entries[key]


@final
class PromptConditions:
    """The conditions of some prompts; `select` encodes those that a pass asks for.

    Args:
        encoded: the prompts of the run.
        prompts: by whose places `select` selects.
    """

    def __init__(self, encoded: EncodedPrompts, prompts: Sequence[Prompt]) -> None:
        self._encoded, self._prompts = encoded, prompts

    def select(self, rows: Tensor) -> Condition:
        """Returns the conditions of prompts in the order of `rows`, repeated where `rows` repeats."""
        places, inverse = rows.unique(return_inverse=True)
        entries = [self._encoded.entry(self._prompts[place]) for place in places.tolist() or [0]]
        inverse = inverse.to(next(iter(entries[0].tensors.values())).device)
        unconditional = [entry.unconditional for entry in entries if entry.unconditional is not None]
        return Condition(
            _rows([entry.tensors for entry in entries], inverse),
            _rows(unconditional, inverse) if len(unconditional) == len(entries) else None,
        )


def _num_bytes(condition: Condition) -> int:
    tensors = [*condition.tensors.values(), *(condition.unconditional or {}).values()]
    return sum(value.numel() * value.element_size() for value in tensors)


def _rows(entries: Sequence[Mapping[str, Tensor]], inverse: Tensor) -> _Tensors:
    return {name: torch.cat([entry[name] for entry in entries])[inverse] for name in entries[0]}


def restored_picture(prompts: Sequence[Prompt], judged: JudgedImages, num_images: int) -> Tensor:
    """Draws the first image of each prompt below what the model was shown, and above the targets, where all have one.

    Args:
        prompts: with their images, at least one.
        judged: their images, `num_images` a prompt.
        num_images: images a prompt.
    """
    places = range(0, len(prompts) * num_images, num_images)
    degraded = [prompt.columns["degraded"].picture for prompt in prompts]
    has_targets = all(prompt.columns.get("clean") is not None for prompt in prompts)
    clean = [prompt.columns["clean"].picture for prompt in prompts] if has_targets else []
    columns, restored = [prompt.columns for prompt in prompts], [judged.shown[place] for place in places]
    return side_by_side(degraded, restored, clean, columns, judged.table.select(places))
