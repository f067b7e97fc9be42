"""The common part of rewards that use a transformers model: loading from a local folder, the error of a missing model,
and the device.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.config.errors import PerStep
from groupwise.reward.base import Reward, RewardError, RewardFunction
from groupwise.reward.completions import Text, prompt_text
from groupwise.reward.image import as_pil, in_batches


def load_from(kind: str, path: str, load: Callable[[], Any], needed_files: str, get: str) -> Any:
    """Loads a model from a folder and returns it.

    Args:
        path: where its model should be.
        load: reads the model from the folder.
        needed_files: what the folder must hold, for the message.
        get: the command or place that provides it.

    Raises:
        RewardError: there is no such folder, or it cannot be read; says what is wanted and where to get it.

    Example:
        >>> load_from("clip_score", "nowhere", lambda: None, "a CLIP model", "hf download ...")
        Traceback (most recent call last):
        ...
        groupwise.reward.base.RewardError: clip_score: path = 'nowhere' is no folder; it needs a CLIP model. Get it with: hf download ...
    """  # noqa: E501
    if not Path(path).is_dir():
        raise RewardError(f"{kind}: path = {path!r} is no folder; it needs {needed_files}. Get it with: {get}")
    try:
        return load()
    except (OSError, ValueError, ImportError, KeyError, AttributeError, RuntimeError) as error:
        present_files = ", ".join(sorted(file.name for file in Path(path).iterdir())) or "nothing"
        raise RewardError(
            f"{kind}: path = {path!r} cannot be loaded: {error}; it needs {needed_files}, and holds"
            f" {present_files}. Get it with: {get}"
        ) from error


def place(device: str) -> str:
    """Returns the name of a torch device; `auto` is the accelerator where the machine has one."""
    import torch

    if device != "auto":
        return device
    return str(torch.accelerator.current_accelerator()) if torch.accelerator.is_available() else "cpu"


class ModelReward(Reward):
    """The common part of the rewards that ask a model of transformers."""

    batch_size: PerStep = 16
    """Images in one forward pass."""
    device: str = "auto"
    """A torch device, or `auto`: the accelerator where there is one."""
    timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 600.0

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> Any:
        return self.open()(prompts, completions, **columns)


# CLIP as a reward of images: the similarity of an image and its prompt, and the features that further rewards build
# on.


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
class ClipScore(ModelReward):
    """`R = 100 cos(image, prompt)` under a CLIP model: how well the image shows what was asked for.

    A prompt longer than the model reads loses its end.

    Example:
        >>> ClipScore(path="nowhere").open()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        groupwise.reward.base.RewardError: clip_score: path = 'nowhere' is no folder; it needs a CLIP model ... hf download openai/clip-vit-large-patch14 ...

    Source: CLIPScore, arXiv 2104.08718; here without its factor 2.5 and its floor at 0, which a comparison inside a
    group does not need.
    """  # noqa: E501

    kind: Literal["clip_score"] = "clip_score"
    path: str
    """A local folder with the model, for example openai/clip-vit-large-patch14."""

    def open(self) -> RewardFunction:
        get = f"hf download openai/clip-vit-large-patch14 --local-dir {self.path}"
        clip = LoadedClip.load(self.kind, self.path, self.device, get)
        return ClipReward(clip, 100.0, self.batch_size)


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


# The LAION aesthetic score: a small head on CLIP's image features, trained on people's ratings from 1 to 10.

_GET_HEAD = (
    "the head is sac+logos+ava1-l14-linearMSE.pth of github.com/christophschuhmann/improved-aesthetic-predictor;"
    " convert it once: safetensors.torch.save_file(torch.load(FILE, weights_only=True), HEAD)"
)


@final
class Aesthetic(ModelReward):
    """`R = head(f)`, `f` the unit image features of a CLIP model and the head a chain of affine maps: about 1 (poor) to
    10 (beautiful), whatever the prompt.

    Example:
        >>> Aesthetic(path="nowhere", head="head.safetensors").open()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        groupwise.reward.base.RewardError: aesthetic: path = 'nowhere' is no folder; ...

    Source: the LAION aesthetic predictor V2 (arXiv 2210.08402, section 3), as in DDPO, arXiv 2305.13301.
    """

    kind: Literal["aesthetic"] = "aesthetic"
    path: str
    """A local folder with openai/clip-vit-large-patch14."""
    head: str
    """A safetensors file with the head's weights, named `layers.N.weight` and `layers.N.bias` as LAION's are."""

    def open(self) -> RewardFunction:
        clip = LoadedClip.load(
            self.kind, self.path, self.device, f"hf download openai/clip-vit-large-patch14 --local-dir {self.path}"
        )
        return AestheticReward(
            clip, _head(self.head, clip.model.config.projection_dim, clip.model.device), self.batch_size
        )


@final
@dataclass(frozen=True)
class AestheticReward:
    """The head on features of a loaded model."""

    clip: LoadedClip
    layers: Sequence[tuple[Any, Any]]
    batch_size: int

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> list[float]:
        return in_batches(completions, self.batch_size, self._score)

    def _score(self, images: Sequence[Any], members: Sequence[int]) -> list[float]:
        import torch

        with torch.inference_mode():
            value = self.clip.image_features(images)
            for weight, bias in self.layers:
                value = torch.nn.functional.linear(value, weight, bias)
            return value[:, 0].tolist()


def _head(path: str, width: int, device: Any) -> list[tuple[Any, Any]]:
    """Reads the affine maps of the head in order, and checks that they lead from the features to one number."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not Path(path).is_file():
        raise RewardError(f"aesthetic: head = {path!r} is no file; {_GET_HEAD}")
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise RewardError(f"aesthetic: head = {path!r} is no safetensors file ({error}); {_GET_HEAD}") from error
    numbers = sorted(int(match[1]) for name in tensors if (match := re.fullmatch(r"layers\.(\d+)\.weight", name)))
    layers = [
        (tensors[f"layers.{number}.weight"].float().to(device), tensors[f"layers.{number}.bias"].float().to(device))
        for number in numbers
    ]
    widths = [width, *(weight.shape[0] for weight, _ in layers)]
    fits = (
        layers
        and widths[-1] == 1
        and all(
            weight.shape[1] == before
            for (weight, _), (before, _) in zip(layers, itertools.pairwise(widths), strict=True)
        )
    )
    if not fits:
        shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
        raise RewardError(
            f"aesthetic: head = {path!r} holds {shapes}, which does not lead from the model's {width} features to one"
            f" number; {_GET_HEAD}"
        )
    return layers


@final
class PickScore(ModelReward):
    """`R = s cos(image, prompt)`, with the model's own learned scale `s = exp(logit_scale)`: a difference of 1 is odds
    of e to 1 of being picked.

    Example:
        >>> PickScore(path="nowhere").open()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        groupwise.reward.base.RewardError: pick_score: path = 'nowhere' is no folder; ... hf download yuvalkirstain/PickScore_v1 ...

    Source: Pick-a-Pic, arXiv 2305.01569, section 4.
    """  # noqa: E501

    kind: Literal["pick_score"] = "pick_score"
    path: str
    """A local folder with yuvalkirstain/PickScore_v1 and the tokenizer and preprocessor_config.json of
    laion/CLIP-ViT-H-14-laion2B-s32B-b79K.
    """
    batch_size: PerStep = 8
    """Images in one forward pass."""

    def open(self) -> RewardFunction:
        beside = "tokenizer.json tokenizer_config.json vocab.json merges.txt preprocessor_config.json"
        get = (
            f"hf download yuvalkirstain/PickScore_v1 --local-dir {self.path}, "
            f"and hf download laion/CLIP-ViT-H-14-laion2B-s32B-b79K {beside} --local-dir {self.path}"
        )
        clip = LoadedClip.load(self.kind, self.path, self.device, get)
        return ClipReward(clip, float(clip.model.logit_scale.detach().exp()), self.batch_size)
