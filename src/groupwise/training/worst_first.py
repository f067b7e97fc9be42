"""The prompts that fare worst, and no others: the data rule of IRPO. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, final

from pydantic import Field

from groupwise.config import Config
from groupwise.config.numbers import Positive

if TYPE_CHECKING:
    from groupwise.streams import Streams


@final
class WorstFirst(Config):
    """Draws from the `share` of the prompts whose last rewards are lowest in the mean, all of them equally likely.

    Every prompt is drawn once before: that pass measures them, and trains on them. From then on only the worst are
    drawn; what they earn is remembered, so that a prompt that has become better than the rest leaves its place to
    another. A share in which there are too few prompts for a step is made as large as a step.

    It suits rewards that say how good an answer is, of one scale for all prompts. Where a reward is right or wrong, the
    worst prompts are those that are never right, whose groups teach nothing: `adaptive_sampling` draws those that are
    right half of the time.

    Args:
        share: of the prompts.
        memory: rewards remembered of each prompt.

    Example:
        >>> rule = WorstFirst(share=0.5)
        >>> rule.candidates({0: [0.9], 1: [0.1, 0.3], 2: [0.5], 3: [0.7]}, 4, 1)
        [1, 2]
        >>> rule.candidates({0: [0.9], 2: [0.5]}, 4, 1)  # prompts 1 and 3 were never drawn
        [1, 3]

    Source: Xu et al. 2026, IRPO, arXiv 2512.00814: the 30 % of the samples that fare worst after pre-training. There
        they are measured once, before training, and stay.
    """

    share: Annotated[float, Field(gt=0, le=1)] = 0.3
    memory: Positive = 8

    def candidates(self, history: Mapping[int, Sequence[float]], num_prompts: int, count: int) -> list[int]:
        """Lists the prompts from which the next are drawn, by place: those without rewards while there are some, then
        the worst.

        Args:
            history: past rewards by place in the training set.
            num_prompts: size of the training set.
            count: the number of prompts that are to be drawn.
        """
        unseen = [place for place in range(num_prompts) if not history.get(place)]
        if len(unseen) >= count:
            return unseen
        recent = {place: rewards[-self.memory :] for place, rewards in history.items() if rewards}
        seen = sorted(recent, key=lambda place: (sum(recent[place]) / len(recent[place]), place))
        size = max(count, math.ceil(self.share * num_prompts)) if not unseen else count
        return [*unseen, *seen[: size - len(unseen)]]

    def draw(
        self, streams: Streams, history: Mapping[int, Sequence[float]], num_prompts: int, drawn: int, count: int
    ) -> tuple[list[int], int]:
        """Draws the next `count` prompts, all different. The draw depends only on the counter and the past rewards.

        Args:
            history: past rewards by place in the training set.
            num_prompts: size of the training set.
            drawn: the counter that the last draw returned, 0 at first.
            count: the number of prompts, at most `num_prompts`.

        Returns:
            places in the training set, and the counter for the next draw.
        """
        assert 0 < count <= num_prompts
        candidates = self.candidates(history, num_prompts, count)
        chosen = streams.numpy("worst", drawn).choice(candidates, size=count, replace=False)
        return [int(place) for place in chosen], drawn + count
