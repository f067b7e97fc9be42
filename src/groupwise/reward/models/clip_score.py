"""CLIP as a reward of images: the similarity of an image and its prompt, and the features that further rewards build
on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.config.numbers import PerStep
from groupwise.reward.base import Reward, RewardFunction
from groupwise.reward.image import as_pil, in_batches
from groupwise.reward.models.folder_model import load_from, place
from groupwise.reward.text import Text, prompt_text


@final
@dataclass(frozen=True)
class LoadedClip:
    """A CLIP model with its tokenizer and image processor, in memory and frozen."""

    model: Any
    tokenizer: Any
    processor: Any

    @staticmethod
    def load(kind: str, path: str, device: str, get: str) -> LoadedClip:
        """Loads a model, its tokenizer and its image processor from a folder of transformers.

        Raises:
            RewardError: what is missing, and where to get it.
        """

        def read() -> LoadedClip:
            from transformers import CLIPImageProcessorPil, CLIPModel, CLIPTokenizer

            model: Any = CLIPModel.from_pretrained(path, use_safetensors=True, local_files_only=True)
            tokenizer: Any = CLIPTokenizer.from_pretrained(path, local_files_only=True)
            processor: Any = CLIPImageProcessorPil.from_pretrained(path, local_files_only=True)
            return LoadedClip(model.to(place(device)).eval().requires_grad_(False), tokenizer, processor)

        needed_files = (
            "a CLIP model of transformers (config.json, model.safetensors), its tokenizer and preprocessor_config.json"
        )
        return load_from(kind, path, read, needed_files, get)

    def image_features(self, images: Sequence[Any]) -> Any:
        """Returns the unit feature vectors of images, `[B, D]`."""
        pixels = self.processor(images=[as_pil(image) for image in images], return_tensors="pt")["pixel_values"]
        features = self.model.get_image_features(pixel_values=pixels.to(self.model.device, self.model.dtype))
        return _unit(features)

    def text_features(self, texts: Sequence[str]) -> Any:
        """Returns the unit feature vectors of texts, `[B, D]`."""
        limit = self.model.config.text_config.max_position_embeddings
        tokens = self.tokenizer(list(texts), padding=True, truncation=True, max_length=limit, return_tensors="pt").to(
            self.model.device
        )
        features = self.model.get_text_features(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"])
        return _unit(features)

    def cosines(self, prompts: Sequence[str], images: Sequence[Any]) -> list[float]:
        """Returns the cosine of each image with its prompt."""
        import torch

        with torch.inference_mode():
            return (self.image_features(images) * self.text_features(prompts)).sum(-1).float().tolist()


def _unit(output: Any) -> Any:
    import torch

    features = output if isinstance(output, torch.Tensor) else output.pooler_output
    return torch.nn.functional.normalize(features.float(), dim=-1)


@final
class ClipScore(Reward):
    """`R = 100 cos(image, prompt)` under a CLIP model: how well the image shows what was asked for.

    A prompt longer than the model reads loses its end.

    Example:
        >>> ClipScore(path="nowhere").open()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        groupwise.reward.error.RewardError: clip_score: path = 'nowhere' is no folder; it needs a CLIP model ... hf download openai/clip-vit-large-patch14 ...

    Source: CLIPScore, arXiv 2104.08718; here without its factor 2.5 and its floor at 0, which a comparison inside a
    group does not need.
    """  # noqa: E501

    kind: Literal["clip_score"] = "clip_score"
    path: str
    """A local folder with the model, for example openai/clip-vit-large-patch14."""
    batch_size: PerStep = 16
    """Images in one forward pass."""
    device: str = "auto"
    """A torch device, or `auto`: the accelerator where there is one."""
    timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 600.0

    def open(self) -> RewardFunction:
        get = f"hf download openai/clip-vit-large-patch14 --local-dir {self.path}"
        clip = LoadedClip.load(self.kind, self.path, self.device, get)
        return ClipReward(clip, 100.0, self.batch_size)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> Any:
        return self.open()(prompts, completions, **columns)


@final
@dataclass(frozen=True)
class ClipReward:
    """`factor cos(image, prompt)`."""

    clip: LoadedClip
    factor: float
    batch_size: int

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> list[float]:
        def score(images: Sequence[Any], members: Sequence[int]) -> list[float]:
            return [
                self.factor * cosine
                for cosine in self.clip.cosines([prompt_text(prompts[member]) for member in members], images)
            ]

        return in_batches(completions, self.batch_size, score)
