"""What an evaluation keeps of the images that it restored: numbers of all, and those that people see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from torch import Tensor

from groupwise.domain.image_source.base import Picture
from groupwise.domain.protocol import Evaluation
from groupwise.domain.restoration import evaluate
from groupwise.domain.restoration.config import EvaluationConfig
from groupwise.domain.side_by_side import answers_in, side_by_side
from groupwise.reward import Rewards, RewardTable


@final
@dataclass(frozen=True)
class Shown:
    """One held-out image, uint8, as the network was given it, as it restored it, and its target."""

    degraded: Tensor
    restored: Tensor
    clean: Tensor


@final
@dataclass(frozen=True)
class JudgedImages:
    """Held-out images, restored and judged.

    Args:
        shown: those that people see, by their places among all.
        table: rewards of all, with PSNR and SSIM.
        baseline: PSNR and SSIM of each as bicubic enlargement gives it; empty where the network keeps the size.
    """

    shown: Mapping[int, Shown]
    table: RewardTable
    baseline: Sequence[tuple[float, float]] = ()

    @staticmethod
    def concatenate(parts: Sequence[JudgedImages]) -> JudgedImages:
        """Joins those of consecutive images."""
        return JudgedImages(
            {place: shown for part in parts for place, shown in part.shown.items()},
            RewardTable.concatenate([part.table for part in parts]),
            [values for part in parts for values in part.baseline],
        )

    def evaluation(self, config: EvaluationConfig, held_out: Sequence[Picture], rewards: Rewards) -> Evaluation:
        """Returns metrics, records and the picture of all images.

        Args:
            config: of the evaluation.
            held_out: all images that were evaluated, in order; each was restored `config.repeats` times.
            rewards: read the other rows of the picture.
        """
        pictures = [picture for picture in held_out for _ in range(config.repeats)]
        numbers = [number for _ in held_out for number in range(config.repeats)]
        written = [self.shown[place].restored for place in range(min(config.num_records, len(pictures)))]
        metrics = evaluate.metrics(self.table)
        if self.baseline:
            means = zip(evaluate.FIDELITY, np.array(self.baseline).mean(0), strict=True)
            metrics |= {f"{evaluate.BASELINE}/{name}": float(value) for name, value in means}
        comparison = self._comparison(config, held_out, rewards)
        return Evaluation(
            metrics,
            tuple(evaluate.records(pictures, numbers, self.table, written, config.num_records)),
            {} if comparison is None else {"images": comparison},
            self.table.events,
        )

    def _comparison(self, config: EvaluationConfig, held_out: Sequence[Picture], rewards: Rewards) -> Tensor | None:
        drawn = drawn_places(held_out, config.num_columns)
        pictures, places = [held_out[place] for place in drawn], [place * config.repeats for place in drawn]
        shown = [self.shown[place] for place in places]
        degraded, clean = [image.degraded for image in shown], [image.clean for image in shown]

        def read(images: Sequence[Tensor]) -> RewardTable:
            return evaluate.score(rewards, pictures, images, clean, degraded, judges=False)

        reads = bool(pictures) and "text" in pictures[0].columns
        answers = answers_in(self.table.select(places), {"degraded": degraded, "clean": clean}, read) if reads else {}
        words = [str(picture.columns.get("text") or "") for picture in pictures]
        return side_by_side(degraded, [image.restored for image in shown], clean, answers, words)


def drawn_places(held_out: Sequence[Picture], num_columns: int) -> list[int]:
    """Lists the places of the images in the picture: the first ones of the first one's size.

    Example:
        >>> small, large = (Picture("a", np.zeros((1, side, side))) for side in (8, 9))
        >>> drawn_places([small, large, small], 12)
        [0, 2]
    """
    return [place for place, picture in enumerate(held_out) if picture.clean.shape[1:] == held_out[0].clean.shape[1:]][
        :num_columns
    ]


def shown_places(held_out: Sequence[Picture], config: EvaluationConfig) -> frozenset[int]:
    """Returns the places, among all restored images, of those that people see: in records and in the picture."""
    drawn = (place * config.repeats for place in drawn_places(held_out, config.num_columns))
    return frozenset((*range(min(config.num_records, len(held_out) * config.repeats)), *drawn))
