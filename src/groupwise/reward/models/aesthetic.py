"""The LAION aesthetic score: a small head on CLIP's image features, trained on people's ratings from 1 to 10."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.config.numbers import PerStep
from groupwise.reward.base import Reward, RewardFunction
from groupwise.reward.error import RewardError
from groupwise.reward.image import in_batches
from groupwise.reward.models.clip_score import LoadedClip
from groupwise.reward.text import Text

_GET_HEAD = (
    "the head is sac+logos+ava1-l14-linearMSE.pth of github.com/christophschuhmann/improved-aesthetic-predictor;"
    " convert it once: safetensors.torch.save_file(torch.load(FILE, weights_only=True), HEAD)"
)


@final
class Aesthetic(Reward):
    """`R = head(f)`, `f` the unit image features of a CLIP model and the head a chain of affine maps: about 1 (poor) to
    10 (beautiful), whatever the prompt.

    Example:
        >>> Aesthetic(path="nowhere", head="head.safetensors").open()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        groupwise.reward.error.RewardError: aesthetic: path = 'nowhere' is no folder; ...

    Source: the LAION aesthetic predictor V2 (arXiv 2210.08402, section 3), as in DDPO, arXiv 2305.13301.
    """

    kind: Literal["aesthetic"] = "aesthetic"
    path: str
    """A local folder with openai/clip-vit-large-patch14."""
    head: str
    """A safetensors file with the head's weights, named `layers.N.weight` and `layers.N.bias` as LAION's are."""
    batch_size: PerStep = 16
    """Images in one forward pass."""
    device: str = "auto"
    """A torch device, or `auto`: the accelerator where there is one."""
    timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 600.0

    def open(self) -> RewardFunction:
        clip = LoadedClip.load(
            self.kind, self.path, self.device, f"hf download openai/clip-vit-large-patch14 --local-dir {self.path}"
        )
        return AestheticReward(
            clip, _head(self.head, clip.model.config.projection_dim, clip.model.device), self.batch_size
        )

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> Any:
        return self.open()(prompts, completions, **columns)


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
