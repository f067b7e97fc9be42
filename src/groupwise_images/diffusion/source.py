"""Sources of prompts, and of images to learn from. A new one is a class in the union `SourceConfig`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, final

import numpy as np
from pydantic import Field, model_validator

from groupwise.config import Config, ConfigError, read_rows
from groupwise.config.errors import PerStep, Seed
from groupwise_images.degradation import Degradation
from groupwise_images.image_source import Digits, Folder, Table, Words
from groupwise_images.image_source.base import handwritten

__all__ = ["Digits", "ImagePairs", "PromptFile", "SourceConfig", "Texts"]


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


# scikit-learn's handwritten digits: 1,797 real images of 8 x 8 pixels; a prompt is a class. Nothing is downloaded.


@final
class DigitPrompts(Config):
    """Ten prompts, one a digit, and the images with their labels.

    Args:
        wrong_labels: share of the images that are shown under another digit's prompt, drawn at random: a base model
            that often gives the wrong digit.
        seed: the seed of the wrong labels; it is not the run's seed.

    Example:
        >>> content = DigitPrompts(wrong_labels=0.4).read()
        >>> len(content.prompts), content.prompts[3]["prompt"], content.images.shape
        (10, 'the digit 3', (1797, 1, 8, 8))
    """

    kind: Literal["digits"] = "digits"
    wrong_labels: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: Seed = 0

    def read(self) -> Content:
        """Reads the prompts, with the columns `prompt` and `label`, and the images."""
        images, labels = load()
        return Content(
            [{"prompt": f"the digit {digit}", "label": digit} for digit in range(10)],
            images[:, None],
            spoil(labels, self.wrong_labels, self.seed),
        )


def load() -> tuple[np.ndarray, np.ndarray]:
    """Loads all images `[1797, 8, 8]` in [0, 1], and their true labels."""
    images, labels = handwritten()
    return images.copy(), labels.copy()


def spoil(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Replaces exactly `round(share * N)` of the labels by another digit; all nine others are equally likely.

    Example:
        >>> import numpy as np
        >>> int((spoil(np.arange(10), 0.4, 0) != np.arange(10)).sum())
        4
    """
    random = np.random.default_rng(seed)
    spoiled = random.choice(len(labels), size=round(share * len(labels)), replace=False)
    wrong = labels.copy()
    wrong[spoiled] = (labels[spoiled] + random.integers(1, 10, size=len(spoiled))) % 10
    return wrong


@final
class ImagePairs(Config):
    """Prompts that are images, for a model that is conditioned on one: degraded images with their targets, from files
    or degraded here.

    Rewards find the prompt as the column `degraded`, the target as `clean`, and the columns of the images' source
    (`label`, `text`, those of a table).

    Args:
        images: `digits` and `words` are made here, `folder` and `table` read files; each holds out images of its own.
        degradation: what is done to a clean image; only where the images have no degraded ones.
        instruction: what is asked for in words with each image, for a pipeline that reads both; unset takes the
            column `instruction` of the images.
        fresh: true degrades a training image anew at each step, false always the same way.
        repeats: how often each held-out image is degraded for evaluation.
        seed: the seed of the degradations that stay the same. It is not the run's seed, so that runs with different
            seeds are judged on the same images.

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


@final
class Nothing(Config):
    """A source without prompts, for a model that is asked something else."""

    kind: Literal["nothing"] = "nothing"

    def read(self) -> Content:
        """Returns no prompts."""
        return Content(())


@final
class PromptFile(Config):
    """A table with a column of prompts: `.txt` with one prompt a line, `.jsonl`, `.json`, `.csv`, `.tsv` or `.parquet`.

    A row that asks for a class by its number (`label`) needs no text.

    Args:
        prompt_column: the column with the prompt.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> file = Path(tempfile.mkdtemp()) / "prompts.txt"
        >>> _ = file.write_text("a red cube\\na blue ball\\n")
        >>> [row["prompt"] for row in PromptFile(path=str(file)).read().prompts]
        ['a red cube', 'a blue ball']
    """

    kind: Literal["prompts"] = "prompts"
    path: Annotated[str, Field(min_length=1)]
    prompt_column: str = "prompt"

    def read(self) -> Content:
        """Reads every distinct prompt, in the file's order.

        Raises:
            ConfigError: the file cannot be read, a row lacks the column, or there is no prompt; names file and line.
        """
        rows = [self._row(where, row) for where, row in read_rows(self.path, "data.source.path")]
        return Content(list({json.dumps(row, sort_keys=True): row for row in rows}.values()))

    def _row(self, place: str, row: dict[str, Any]) -> dict[str, Any]:
        text = row.get(self.prompt_column)
        if self.prompt_column not in row and isinstance(row.get("label"), int):
            # A class is asked for by its number; the text is for people.
            text = f"class {row['label']}"
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(
                f"{place} has no text in column {self.prompt_column!r} (there: {sorted(row)}); set"
                " data.source.prompt_column, or give it one"
            )
        return {**row, "prompt": text}


@final
class Texts(Config):
    """A list of prompts.

    Args:
        prompts: texts, each once.

    Example:
        >>> Texts(prompts=("a red cube", "a blue ball")).read().prompts[1]
        {'prompt': 'a blue ball'}
    """

    kind: Literal["texts"] = "texts"
    prompts: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]

    def read(self) -> Content:
        """Returns every prompt once, in this order."""
        return Content([{"prompt": prompt} for prompt in dict.fromkeys(self.prompts)])


SourceConfig = Annotated[DigitPrompts | ImagePairs | PromptFile | Texts, Field(discriminator="kind")]
"""Any source, chosen by `kind`."""
