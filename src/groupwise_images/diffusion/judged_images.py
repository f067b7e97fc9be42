"""Hands drawn images and videos to the rewards, with the columns of their prompts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from groupwise.domain.protocol import Prompt
from groupwise.reward import Rewards, RewardTable
from groupwise_images.diffusion.pipeline_adapter import PromptImage

# Videos: shown to people as strips of their frames, and rewarded frame by frame.


def as_strips(images: Tensor) -> Tensor:
    """Lays the frames of videos side by side; images are returned as they are.

    Args:
        images: uint8 `[N, H, W]` or `[N, H, W, 3]`, of videos `[N, F, H, W, 3]`.

    Returns:
        of videos `[N, H, F W, 3]`.

    Example:
        >>> as_strips(torch.zeros(2, 5, 16, 8, 3, dtype=torch.uint8)).shape
        torch.Size([2, 16, 40, 3])
    """
    if images.dim() < 5:
        return images
    return torch.cat(images.unbind(1), dim=2)


def score_frames(
    videos: Tensor,
    prompts: Sequence[Any],
    columns: dict[str, list[Any]],
    score: Callable[[list[Any], list[Any], dict[str, list[Any]]], RewardTable],
) -> RewardTable:
    """Rewards every frame as an image; a video's reward is the mean over its frames.

    Args:
        videos: uint8 `[B, F, H, W, 3]`, on the CPU.
        prompts: `B` of them.
        columns: name -> `B` entries.
        score: rewards prompts, images and columns, `B F` of each, the frames of a video one after another.

    Returns:
        one entry a video. A frame whose reward is missing is left out of the mean.

    Example:
        >>> table = score_frames(
        ...     torch.zeros(1, 2, 4, 4, 3, dtype=torch.uint8),
        ...     ["a cat"],
        ...     {},
        ...     lambda prompts, images, columns: RewardTable({"rank": [0.0, 1.0]}),
        ... )
        >>> table.values
        {'rank': [0.5]}
    """
    num_frames = videos.shape[1]

    def repeated(entries: Sequence[Any]) -> list[Any]:
        return [entry for entry in entries for _ in range(num_frames)]

    frame_columns = {name: repeated(entries) for name, entries in columns.items()}
    table = score(repeated(prompts), list(videos.flatten(0, 1)), frame_columns)
    return _of_videos(table, num_frames)


def _of_videos(table: RewardTable, num_frames: int) -> RewardTable:
    def by_video(entries: Sequence[Any]) -> list[list[Any]]:
        return [list(entries[start : start + num_frames]) for start in range(0, len(entries), num_frames)]

    return RewardTable(
        {name: [_mean(frames) for frames in by_video(values)] for name, values in table.values.items()},
        table.weights,
        [
            event if event.member is None else replace(event, member=event.member // num_frames)
            for event in table.events
        ],
        table.seconds,
        table.judges,
        fields={
            name: {
                field: [_mean(frames) if _are_numbers(frames) else frames for frames in by_video(entries)]
                for field, entries in fields.items()
            }
            for name, fields in table.fields.items()
        },
        bounds=table.bounds,
        logged=table.logged,
        extras={column: by_video(entries) for column, entries in table.extras.items()},
    )


def _mean(frames: Sequence[float | None]) -> float | None:
    present = [value for value in frames if value is not None]
    return math.fsum(present) / len(present) if present else None


def _are_numbers(entries: Sequence[Any]) -> bool:
    return all(entry is None or isinstance(entry, int | float) for entry in entries)


def judge(
    rewards: Rewards, prompts: Sequence[Prompt], group: Sequence[int], images: Tensor, *, judges: bool, frames: bool
) -> RewardTable:
    """Computes every reward of every image. A map counts by its mean: a decision is a transition of the whole image.

    Args:
        rewards: the rewards of the domain.
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
