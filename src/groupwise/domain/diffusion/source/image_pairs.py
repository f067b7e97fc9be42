"""Images as prompts: a degraded image is asked for, and its target learnt from."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field, model_validator

from groupwise.config import Config
from groupwise.config.numbers import PerStep, Seed
from groupwise.domain.degradation import Degradation
from groupwise.domain.image_source import Digits, Folder, Table, Words


@final
class ImagePairs(Config):
    """Prompts that are images, for a model that is conditioned on one: degraded images with their targets, from files
    or degraded here.

    Rewards find the prompt as the column `degraded`, the target as `clean`, and the columns of the images' source
    (`label`, `text`, those of a table).

    Args:
        images: `digits` and `words` are made here, `folder` and `table` read files; each holds out images of its own.
        degradation: what is done to a clean image; only where the images have no degraded ones.
        instruction: what is asked for in words beside each image, for a pipeline that reads both; unset takes the
            column `instruction` of the images.
        fresh: each step degrades a training image anew; otherwise always the same way.
        repeats: how often each held-out image is degraded for evaluation.
        seed: of the degradations that stay the same. It is not the run's seed, so that runs with different seeds are
            judged on the same images.

    Example:
        >>> source = ImagePairs(images={"kind": "digits"}, degradation={"kind": "gaussian_noise", "sigma": 0.6})
        >>> source.images.num_train, source.repeats
        (1200, 1)
    """

    kind: Literal["image_pairs"] = "image_pairs"
    images: Annotated[Digits | Words | Folder | Table, Field(discriminator="kind")]
    degradation: Degradation | None = None
    instruction: Annotated[str, Field(min_length=1)] | None = None
    fresh: bool = True
    repeats: PerStep = 1
    seed: Seed = 0

    @model_validator(mode="after")
    def _degraded_once(self) -> ImagePairs:
        if self.is_paired and self.degradation is not None:
            raise ValueError("degradation: the images come with degraded ones of their own; remove one of the two")
        if self.is_paired and self.repeats > 1:
            raise ValueError(
                f"repeats = {self.repeats}: degraded images that come from files are always the same; write repeats = 1"
            )
        if not self.is_paired and self.degradation is None:
            raise ValueError(
                f"degradation is unset, and images.kind = {self.images.kind!r} gives clean images alone; write for"
                ' example degradation = { kind = "gaussian_noise", sigma = 0.2 }'
            )
        factor = self.images.scale if isinstance(self.images, Folder) and self.is_paired else 1
        if max(factor, 1 if self.degradation is None else self.degradation.factor) > 1:
            raise ValueError(
                "degraded images are smaller than their targets, and a model is conditioned on an image of the size"
                ' that it draws; write a degradation that keeps the size, or domain.kind = "restoration" with an'
                " upscaling network"
            )
        return self

    @property
    def is_paired(self) -> bool:
        """Whether the images come with degraded ones."""
        return isinstance(self.images, Table) or (isinstance(self.images, Folder) and self.images.degraded is not None)
