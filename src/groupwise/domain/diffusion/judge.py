"""Hands images to the rewards, with the columns of their prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from groupwise.domain.diffusion.prompt_image import PromptImage
from groupwise.domain.diffusion.videos import score_frames
from groupwise.domain.protocol import Prompt
from groupwise.reward import Rewards, RewardTable


def judge(
    rewards: Rewards, prompts: Sequence[Prompt], group: Sequence[int], images: Tensor, *, judges: bool, frames: bool
) -> RewardTable:
    """Computes every reward of every image. A map counts by its mean: a decision is a transition of the whole image.

    Args:
        rewards: of the domain.
        prompts: with their columns; those that all have are handed on, images of them as uint8.
        group: the place of each image's prompt.
        images: uint8 `[N, H, W(, 3)]`, or videos.
        judges: whether judges are asked too.
        frames: whether rewards see the frames of a video one by one.
    """
    member_columns = [prompts[index].columns for index in group]
    names = set.intersection(*map(set, member_columns)) - {"prompt"} if member_columns else set()
    columns = {name: [_handed(row[name]) for row in member_columns] for name in sorted(names)}
    # Rewards that read texts refuse images with a message.
    prompt_texts = [row["prompt"] for row in member_columns]
    score = partial(rewards.score, judges=judges)
    if frames:
        return replace(score_frames(images.cpu(), prompt_texts, columns, score), maps={})
    completions: Any = list(images.cpu())
    return replace(score(prompt_texts, completions, columns), maps={})


def _handed(value: Any) -> Any:
    return value.picture if isinstance(value, PromptImage) else value
