"""What an evaluation keeps of its images: numbers of all, and the first ones for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from typing import final

import torch
from torch import Tensor

from groupwise.domain.diffusion import evaluate
from groupwise.domain.diffusion.config import EvaluationConfig
from groupwise.domain.diffusion.videos import as_strips
from groupwise.domain.image_evaluation import images_at_once
from groupwise.domain.pass_sizes import MOST_ROWS
from groupwise.domain.protocol import Evaluation, Peers, Prompt
from groupwise.domain.shares import in_shares
from groupwise.reward import RewardTable


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
