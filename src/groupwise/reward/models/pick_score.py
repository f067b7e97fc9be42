"""PickScore: a CLIP model trained on which of two images people pick for a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.config.numbers import PerStep
from groupwise.reward.base import Reward, RewardFunction
from groupwise.reward.models.clip_score import ClipReward, LoadedClip
from groupwise.reward.text import Text


@final
class PickScore(Reward):
    """`R = s cos(image, prompt)`, with the model's own learned scale `s = exp(logit_scale)`: a difference of 1 is odds
    of e to 1 of being picked.

    Example:
        >>> PickScore(path="nowhere").open()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        groupwise.reward.error.RewardError: pick_score: path = 'nowhere' is no folder; ... hf download yuvalkirstain/PickScore_v1 ...

    Source: Pick-a-Pic, arXiv 2305.01569, section 4.
    """  # noqa: E501

    kind: Literal["pick_score"] = "pick_score"
    path: str
    """A local folder with yuvalkirstain/PickScore_v1 and the tokenizer and preprocessor_config.json of
    laion/CLIP-ViT-H-14-laion2B-s32B-b79K.
    """
    batch_size: PerStep = 8
    """Images in one forward pass."""
    device: str = "auto"
    """A torch device, or `auto`: the accelerator where there is one."""
    timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 600.0

    def open(self) -> RewardFunction:
        beside = "tokenizer.json tokenizer_config.json vocab.json merges.txt preprocessor_config.json"
        get = (
            f"hf download yuvalkirstain/PickScore_v1 --local-dir {self.path}, "
            f"and hf download laion/CLIP-ViT-H-14-laion2B-s32B-b79K {beside} --local-dir {self.path}"
        )
        clip = LoadedClip.load(self.kind, self.path, self.device, get)
        return ClipReward(clip, float(clip.model.logit_scale.detach().exp()), self.batch_size)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> Any:
        return self.open()(prompts, completions, **columns)
