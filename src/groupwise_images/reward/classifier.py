"""The probability that a frozen classifier gives the requested class of an image."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, final

from pydantic import model_validator

from groupwise.config import ImportPath, user_callable
from groupwise.config.errors import PerStep
from groupwise.reward.base import RewardError, RewardFunction, Value
from groupwise.reward.callable import ENTRY_POINTS
from groupwise.reward.completions import Text
from groupwise.reward.image import as_array, as_pil, in_batches
from groupwise_images.reward.preference import ModelReward, load_from, place


@final
class Classifier(ModelReward):
    """`R = p(label | image)` under a frozen classifier, its logarithm, or 1 where the label is the most likely class.

    The classifier is a folder of transformers (`path`) or any callable (`function`) that takes images, one `uint8 [H,
    W, 3]` array each, and returns one row of class scores for each: `[B, K]`, logits unless `probabilities` says
    otherwise.

    Example:
        >>> import torch
        >>> reward = Classifier(function="groupwise_images.reward.classifier:brightness", output="correct")
        >>> reward(["", ""], [torch.zeros(2, 2, dtype=torch.uint8)] * 2, label=[0, 1])
        [1.0, 0.0]
    """

    kind: Literal["classifier"] = "classifier"
    path: str | None = None
    """A local folder with an image classifier of transformers and its preprocessor_config.json."""
    function: ImportPath | None = None
    """`package.module:name`, or an entry point of the group `groupwise.rewards`."""
    column: str = "label"
    """The data column with the class asked for: its number, or its name where the folder's configuration names its
    classes.
    """
    output: Literal["probability", "log_probability", "correct"] = "probability"
    probabilities: bool = False
    """True where the function returns probabilities instead of logits."""
    batch_size: PerStep = 64
    """Images in one call."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.path is None) == (self.function is None):
            raise ValueError("give exactly one of path (a folder of transformers) and function ('package.module:name')")
        if self.probabilities and self.function is None:
            raise ValueError(
                "probabilities = true says what a function returns; a folder's model returns logits, remove it"
            )
        return self

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.column,)

    def open(self) -> RewardFunction:
        if self.function is not None:
            return ClassifierReward(self, user_callable(self.function, "function", group=ENTRY_POINTS), {})
        assert self.path is not None
        needed_files = (
            "an image classifier of transformers (config.json, model.safetensors) and preprocessor_config.json"
        )
        get = f"hf download google/vit-base-patch16-224 --local-dir {self.path} (or any other classifier)"
        model = load_from(self.kind, self.path, self._load, needed_files, get)
        return ClassifierReward(self, model, model.names)

    def _load(self) -> FolderClassifier:
        import transformers
        from transformers import AutoModelForImageClassification

        assert self.path is not None
        model: Any = AutoModelForImageClassification.from_pretrained(
            self.path, use_safetensors=True, local_files_only=True, trust_remote_code=False
        )
        # These processors need only Pillow; torchvision's differ by rounding. In transformers 5.17 the automatic choice
        # needs torchvision.
        processor_name = json.loads((Path(self.path) / "preprocessor_config.json").read_text(encoding="utf-8"))[
            "image_processor_type"
        ]
        processor: Any = getattr(
            transformers, processor_name.removesuffix("Fast").removesuffix("Pil") + "Pil"
        ).from_pretrained(self.path, local_files_only=True)
        return FolderClassifier(model.to(place(self.device)).eval().requires_grad_(False), processor)


@final
@dataclass(frozen=True)
class FolderClassifier:
    """A classifier of transformers as a function from images to logits."""

    model: Any
    processor: Any

    @property
    def names(self) -> Mapping[str, int]:
        """Class names and their numbers."""
        return {str(name): int(number) for number, name in self.model.config.id2label.items()}

    def __call__(self, images: Sequence[Any]) -> Any:
        import torch

        pixels = self.processor(images=[as_pil(image) for image in images], return_tensors="pt")["pixel_values"]
        with torch.inference_mode():
            return self.model(pixel_values=pixels.to(self.model.device, self.model.dtype)).logits.float().cpu()


@final
@dataclass(frozen=True)
class ClassifierReward:
    """A reward around a classifier in memory."""

    config: Classifier
    classify: Callable[[Sequence[Any]], Any]
    names: Mapping[str, int]

    @property
    def needs(self) -> tuple[str, ...]:
        """The column with the class."""
        return self.config.needs

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> list[Value]:
        labels = columns[self.config.column]
        labelled = [member for member, label in enumerate(labels) if label is not None]

        def score(images: Sequence[Any], places: Sequence[int]) -> list[float]:
            return self._score(images, [labels[labelled[place]] for place in places])

        values = in_batches([completions[member] for member in labelled], self.config.batch_size, score)
        by_member = dict(zip(labelled, values, strict=True))
        return [by_member.get(member) for member in range(len(completions))]

    def _score(self, images: Sequence[Any], labels: Sequence[Any]) -> list[float]:
        import torch

        scores = torch.as_tensor(self.classify([as_array(image) for image in images]))
        if scores.dim() != 2 or scores.shape[0] != len(images):
            raise RewardError(
                f"classifier: {self.config.function!r} returned {list(scores.shape)} for {len(images)} images; return"
                " one row of classes each"
            )
        scores = scores.double()
        # A class may be ruled out by -inf, but not all of them; NaN would count as the likeliest.
        if not bool(scores.amax(1).isfinite().all()):
            raise RewardError(f"classifier: {(self.config.function or self.config.path)!r} gives NaN or infinity")
        chosen = torch.tensor([self._number(label, scores.shape[1]) for label in labels])
        if self.config.output == "correct":
            return (scores.argmax(1) == chosen).double().tolist()
        log_prob = scores.log() if self.config.probabilities else scores.log_softmax(1)
        picked = log_prob.gather(1, chosen[:, None])[:, 0]
        # A probability of exactly 0 has no logarithm that a mean could bear.
        return picked.exp().tolist() if self.config.output == "probability" else picked.clamp(min=-100.0).tolist()

    def _number(self, label: Any, num_classes: int) -> int:
        number = self.names.get(label) if isinstance(label, str) else int(label)
        if number is None or not 0 <= number < num_classes:
            allowed = (
                f"a name among {', '.join(sorted(self.names)[:8])}" if self.names else f"a number below {num_classes}"
            )
            raise RewardError(
                f"classifier: column {self.config.column!r} asks for {label!r}, which is no class; write {allowed}"
            )
        return number


def brightness(images: Sequence[Any]) -> list[list[float]]:
    """Classifies images as dark (class 0) or bright (class 1): the shortest example of a classifier.

    Example:
        >>> import numpy
        >>> brightness([numpy.full((2, 2, 3), 255, dtype="uint8")])
        [[0.0, 127.5]]
    """
    return [[0.0, float(image.mean()) - 127.5] for image in images]
