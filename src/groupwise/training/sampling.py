"""Prompts drawn by how often they were solved lately: adaptive sampling, a later idea of source 002. Imports no
torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, final

from pydantic import Field, model_validator

from groupwise.config import Config
from groupwise.config.errors import PerStep, Positive

if TYPE_CHECKING:
    from groupwise.streams import Streams


@final
class AdaptiveSampling(Config):
    """Draws prompts with weights `4 p (1 - p) + floor`, where `p` is the share of the prompt's last rewards above
    `threshold`; a prompt without rewards weighs `1 + floor`.

    A prompt that is always or never solved gives flat groups and little to learn; one that is solved half of the time
    gives most. The floor keeps every prompt in the draw, so that training notices a prompt that becomes solvable, or
    that is forgotten. Adaptive sampling replaces epochs: no prompt comes twice in a step, and chance decides how often
    a prompt comes.

    Args:
        threshold: a reward (the weighted sum) above it counts as solved.
        memory: rewards remembered of each prompt.
        floor: weight that every prompt has, whatever its pass rate.

    Example:
        >>> rule = AdaptiveSampling(floor=0.1)
        >>> [round(rule.weight(rewards), 2) for rewards in ([], [1.0, 0.0], [1.0, 1.0, 1.0, 0.0], [0.0, 0.0])]
        [1.1, 1.1, 0.85, 0.1]

    Source: source 002's list of later ideas; the weight is the variance of a pass or fail, scaled to 1.
    """

    threshold: float = 0.0
    memory: Positive = 32
    floor: Annotated[float, Field(gt=0)] = 0.05

    def weight(self, rewards: Sequence[float]) -> float:
        """Returns the weight in the draw of a prompt with these past rewards.

        Args:
            rewards: the prompt's last rewards, at most `memory` of them.
        """
        if not rewards:
            return 1 + self.floor
        solved = sum(reward > self.threshold for reward in rewards) / len(rewards)
        return 4 * solved * (1 - solved) + self.floor

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
        import numpy as np

        assert 0 < count <= num_prompts
        weights = np.full(num_prompts, 1 + self.floor)
        for place, rewards in history.items():
            weights[place] = self.weight(rewards[-self.memory :])
        chosen = streams.numpy("adaptive", drawn).choice(
            num_prompts, size=count, replace=False, p=weights / weights.sum()
        )
        return [int(place) for place in chosen], drawn + count


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
        share: the share of the prompts.
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


@final
class DynamicGroupSize(Config):
    """After a step in which more than `grow_above` of the groups were flat, groups are twice as large; after one with
    fewer than `shrink_below`, half as large.

    A flat group teaches nothing, and more members make it less likely; where no group is flat, fewer members give more
    prompts for the same cost. `train.group_size` is the size of the first step.

    Args:
        minimum, maximum: bounds of the group's size.
        grow_above, shrink_below: shares of flat groups, between 0 and 1.

    Example:
        >>> rule = DynamicGroupSize(minimum=4, maximum=16)
        >>> (
        ...     rule.next(8, flat_share=0.75),
        ...     rule.next(8, flat_share=0.3),
        ...     rule.next(8, flat_share=0.0),
        ...     rule.next(16, flat_share=1.0),
        ... )
        (16, 8, 4, 16)

    Source: source 002's list of later ideas.
    """

    minimum: Annotated[PerStep, Field(ge=2)] = 2
    maximum: Annotated[PerStep, Field(ge=2)] = 32
    grow_above: Annotated[float, Field(ge=0, le=1)] = 0.5
    shrink_below: Annotated[float, Field(ge=0, le=1)] = 0.1

    @model_validator(mode="after")
    def _ordered(self) -> DynamicGroupSize:
        if self.minimum > self.maximum:
            raise ValueError(
                f"minimum = {self.minimum} is above maximum = {self.maximum}; write minimum = {self.maximum} or less"
            )
        if self.shrink_below > self.grow_above:
            raise ValueError(
                f"shrink_below = {self.shrink_below} is above grow_above = {self.grow_above}, so a group would grow and"
                " shrink at once; exchange them"
            )
        return self

    def next(self, size: int, flat_share: float) -> int:
        """Returns the size of the next step's groups.

        Args:
            size: members in a group of this step.
            flat_share: share of this step's groups whose rewards were all equal.
        """
        if flat_share > self.grow_above:
            size *= 2
        elif flat_share < self.shrink_below:
            size //= 2
        return min(max(size, self.minimum), self.maximum)
