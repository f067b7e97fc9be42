"""Prompts drawn by their last rewards, and groups whose size follows them. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, final

from pydantic import Field, model_validator

from groupwise.config import Config
from groupwise.config.errors import PerStep, Positive

if TYPE_CHECKING:
    from groupwise.streams import Streams


@final
class AdaptiveSampling(Config):
    """Draws prompts by how much their last rewards say.

    Without a threshold a prompt weighs `rank + floor`, where `rank` is the share of the prompts whose rewards spread no
    more than its own; a prompt whose rewards are all equal weighs the floor. With a threshold it weighs
    `4 p (1 - p) + floor`, where `p` is the share of its last rewards above it; while a threshold has all rewards of all
    prompts on one side it says nothing, and prompts are ranked. A prompt without rewards weighs `1 + floor`.

    A prompt whose answers all earn the same gives flat groups and little to learn; one that is solved half of the time
    gives most. The floor keeps every prompt in the draw, so that training notices a prompt that becomes solvable, or
    that is forgotten. Adaptive sampling replaces epochs: no prompt comes twice in a step, and chance decides how often
    a prompt comes.

    Args:
        threshold: a reward (the weighted sum) above it counts as solved; unset ranks prompts, for rewards of any scale.
        memory: rewards remembered of each prompt.
        floor: weight that every prompt has, whatever its rewards.

    Example:
        >>> history = {0: [1.0, 0.0], 1: [1.0, 1.0, 1.0, 0.0], 2: [0.0, 0.0]}
        >>> AdaptiveSampling(threshold=0.5, floor=0.1).weights(history, 4).round(2).tolist()
        [1.1, 0.85, 0.1, 1.1]
        >>> AdaptiveSampling(floor=0.1).weights({0: [5.6, 5.7], 1: [5.0, 5.0], 2: [5.1, 5.9]}, 3).round(2).tolist()
        [0.77, 0.1, 1.1]

    Source: source 002's list of later ideas; `4 p (1 - p)` is the variance of a pass or fail, scaled to 1.
    """

    threshold: Annotated[float, Field(allow_inf_nan=False)] | None = None
    memory: Positive = 32
    floor: Annotated[float, Field(gt=0)] = 0.05

    def weights(self, history: Mapping[int, Sequence[float]], num_prompts: int) -> Any:
        """Returns the weight of every prompt in the draw, an array `[num_prompts]`.

        Args:
            history: past rewards by place in the training set.
            num_prompts: size of the training set.
        """
        import numpy as np

        weights = np.ones(num_prompts)
        last = {place: np.array(rewards[-self.memory :]) for place, rewards in history.items() if len(rewards)}
        if self.threshold is not None and self.separates(last.values()):
            for place, rewards in last.items():
                solved = (rewards > self.threshold).mean()
                weights[place] = 4 * solved * (1 - solved)
        elif last:
            spreads = np.array([_spread(rewards) for rewards in last.values()])
            ranks = np.searchsorted(np.sort(spreads), spreads, side="right") / len(spreads)
            weights[list(last)] = np.where(spreads > 0, ranks, 0.0)
        return weights + self.floor

    def separates(self, rewards: Iterable[Iterable[float]]) -> bool:
        """Returns whether the threshold lies among these rewards, so that some are above it and others are not.

        Args:
            rewards: the rewards of each prompt.
        """
        threshold = self.threshold
        return threshold is None or len({value > threshold for some in rewards for value in some}) == 2

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
        weights = self.weights(history, num_prompts)
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
    """After a step in which more than `grow_above` of the groups were narrow, groups are twice as large; where fewer
    than `shrink_below` would have been narrow with the first half of their members, half as large.

    A group is narrow where its rewards are all equal, or lie closer together (largest less smallest) than `narrow`
    times the widest mean range that a step of the stage has had. Such a group teaches little, and more members make it
    less likely; where half of the members would do, fewer members give more prompts for the same cost. Rewards that
    are 0 or 1 are narrow only where they are equal. Under a reward that is a size or a score, groups grow as training
    takes away what answers differ in. `train.group_size` is the size of the first step; the metric `groups/narrow` is
    the share that decides.

    Args:
        minimum, maximum: bounds of the group's size.
        grow_above, shrink_below: shares of narrow groups, between 0 and 1.
        narrow: the part of the widest mean range below which a group is narrow; 0 counts groups of equal rewards alone.

    Example:
        >>> rule = DynamicGroupSize(minimum=2, maximum=16)
        >>> solved, unsolved, both = [1, 1, 1, 1], [0, 0, 0, 0], [0, 1, 0, 1]
        >>> rule.next(4, [solved, unsolved, both]), rule.next(4, [both, solved]), rule.next(4, [both, both])
        (8, 4, 2)
        >>> rule.next(4, [[5.0, 5.2, 5.1, 5.3]], widest=2.0)
        8

    Source: source 002's list of later ideas, where the size follows the progress of training.
    """

    minimum: Annotated[PerStep, Field(ge=2)] = 2
    maximum: Annotated[PerStep, Field(ge=2)] = 32
    grow_above: Annotated[float, Field(ge=0, le=1)] = 0.5
    shrink_below: Annotated[float, Field(ge=0, le=1)] = 0.1
    narrow: Annotated[float, Field(ge=0, lt=1)] = 0.5

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

    def narrow_share(self, groups: Sequence[Sequence[float]], widest: float = 0.0) -> float:
        """Returns the share of groups that are narrow.

        Args:
            groups: the rewards of each group of a step.
            widest: the largest mean range of the groups in any step of the stage.
        """
        ranges = [max(rewards) - min(rewards) for rewards in groups]
        return sum(value <= 0 or value < self.narrow * widest for value in ranges) / max(len(ranges), 1)

    def next(self, size: int, groups: Sequence[Sequence[float]], widest: float = 0.0, flat_share: float = 0.0) -> int:
        """Returns the size of the next step's groups.

        Args:
            size: members in a group of this step.
            groups: the rewards of each group.
            widest: as in `narrow_share`.
            flat_share: share of the groups whose rewards are all equal up to their rounding.
        """
        if max(flat_share, self.narrow_share(groups, widest)) > self.grow_above:
            size *= 2
        elif (
            self.narrow_share([rewards[: max(len(rewards) // 2, 1)] for rewards in groups], widest) < self.shrink_below
        ):
            size //= 2
        return min(max(size, self.minimum), self.maximum)


def _spread(rewards: Any) -> float:
    """Returns the standard deviation of rewards; 0 where they differ by rounding alone."""
    return float(rewards.std()) if rewards.max() - rewards.min() > 1e-9 * max(1.0, abs(rewards).max()) else 0.0
