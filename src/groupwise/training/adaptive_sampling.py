"""Prompts drawn by how often they were solved lately: adaptive sampling, a later idea of source 002. Imports no
torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, final

from pydantic import Field

from groupwise.config import Config
from groupwise.config.numbers import Positive

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
