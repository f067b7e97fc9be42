"""What an evaluation keeps of its images: numbers of all, and the first ones for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import torch
from torch import Tensor

from groupwise.domain.base import in_shares
from groupwise.domain.pass_sizes import MOST_ROWS
from groupwise.domain.protocol import Evaluation, Peers, Prompt
from groupwise.reward import Rewards, RewardTable
from groupwise.reward.base import RewardError
from groupwise_images.diffusion import evaluate
from groupwise_images.diffusion.config import EvaluationConfig
from groupwise_images.diffusion.pipeline_adapter import PromptImage
from groupwise_images.image_evaluation import images_at_once

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

    Raises:
        RewardError: as `score` raises it, with what the reward was called with.

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
    try:
        table = score(repeated(prompts), list(videos.flatten(0, 1)), frame_columns)
    except RewardError as error:
        if error.reward is None or error.member is not None:
            raise
        message = (
            f"{error} (it was called with the {num_frames} frames of each video, images one after another; return one"
            ' number a frame, or write domain.video_rewards = "whole" for one a video)'
        )
        raise RewardError(message, reward=error.reward) from error
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


@final
@dataclass(frozen=True)
class JudgedImages:
    """The images of some prompts, judged.

    Args:
        shown: uint8 `[N, H, W(, 3)]`, those of the first prompts, which people see.
        table: rewards of all images.
        diversity: of the images of each prompt; empty where a prompt has one.
    """

    shown: Tensor
    table: RewardTable
    diversity: Sequence[float]

    @staticmethod
    def concatenate(parts: Sequence[JudgedImages]) -> JudgedImages:
        """Joins those of consecutive prompts."""
        return JudgedImages(
            torch.cat([part.shown for part in parts]),
            RewardTable.concatenate([part.table for part in parts]),
            [value for part in parts for value in part.diversity],
        )

    def evaluation(self, config: EvaluationConfig, prompts: Sequence[Prompt]) -> Evaluation:
        """Returns the metrics, records and picture of the images of all prompts.

        Args:
            config: of the evaluation.
            prompts: all that were evaluated, in order.
        """
        mode, shown = config.sampler.kind, as_strips(self.shown)
        pictures = {}
        if config.num_columns:
            captions = [str(prompt.columns["prompt"]) for prompt in prompts]
            pictures["images"] = evaluate.grid(shown, config.num_images, config.num_rows, config.num_columns, captions)
        return Evaluation(
            evaluate.metrics(mode, self.table, self.diversity),
            tuple(evaluate.records(mode, prompts, shown, config.num_images, self.table, config.num_records)),
            pictures,
            self.table.events,
        )


@final
@dataclass(frozen=True)
class Judging:
    """Draws and judges the images of many prompts, a chunk at a time.

    Args:
        show: gives prompts as the model is shown them, which may hold an image each.
        draw: gives the images of prompts, uint8 `[N, H, W(, 3)]`.
        rewards: gives the rewards of the images of prompts.
        config: of the evaluation.
        elements: numbers in a latent.
    """

    show: Callable[[Sequence[Prompt]], Sequence[Prompt]]
    draw: Callable[[Sequence[Prompt]], Tensor]
    rewards: Callable[[Sequence[Prompt], Tensor], RewardTable]
    config: EvaluationConfig
    elements: int

    def judge(self, prompts: Sequence[Prompt], peers: Peers | None = None, *, together: bool = False) -> JudgedImages:
        """Judges the images of prompts, a share of the prompts on each process.

        Args:
            prompts: all that are evaluated, the same on all processes.
            peers: the processes; None for this process alone.
            together: whether a process draws only while all others do, as sharded weights ask: one that has fewer
                chunks than another draws the first prompt meanwhile and drops the images.
        """
        most = max(peers.gather(self._num_chunks(peers.share(len(prompts))))) if peers and together else 0

        def accompany(num_chunks: int) -> None:
            for _ in range(num_chunks, most):
                self.draw(self.show(prompts[:1]))

        def judge_share(placed: Sequence[tuple[int, Prompt]]) -> JudgedImages:
            judged = self._judge_chunks(placed)
            accompany(self._num_chunks(placed))
            return judged

        return JudgedImages.concatenate(
            in_shares(list(enumerate(prompts)), peers, judge_share, idle=partial(accompany, 0))
        )

    def _judge_chunks(self, placed: Sequence[tuple[int, Prompt]]) -> JudgedImages:
        """Judges prompts with their places among all, and keeps the images that people see; the others are let go
        before the next are drawn.
        """
        config = self.config
        num_shown = max(-(-config.num_records // config.num_images), config.num_rows if config.num_columns else 0)
        size, judged = self._chunk_size, []
        for start in range(0, len(placed), size):
            chunk = placed[start : start + size]
            prompts = self.show([prompt for _, prompt in chunk])
            images = self.draw(prompts)
            table = self.rewards(prompts, images)
            count = config.num_images * sum(place < num_shown for place, _ in chunk)
            diversity = evaluate.diversity_of_prompts(images, config.num_images) if config.num_images > 1 else []
            # A slice would keep all images in memory.
            judged.append(JudgedImages(images[:count].clone(), table, diversity))
        return JudgedImages.concatenate(judged)

    def _num_chunks(self, prompts: Sized) -> int:
        return -(-len(prompts) // self._chunk_size)

    @property
    def _chunk_size(self) -> int:
        return prompts_at_once(self.config.num_images, self.elements)


def prompts_at_once(num_images: int, elements: int) -> int:
    """Returns the number of prompts whose images are drawn and judged before they are let go; see `images_at_once`.

    Args:
        num_images: images a prompt.
        elements: numbers in a latent.

    Example:
        >>> prompts_at_once(8, 64), prompts_at_once(8, 4 * 64 * 64), prompts_at_once(100, 2**20)
        (128, 8, 1)
    """
    return max(1, images_at_once(elements, MOST_ROWS) // num_images)


# Hands images to the rewards, with the columns of their prompts.


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
