"""How far the first training rewards lie from what the same policy earned in its first evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from groupwise.diagnosis.rule.base import rewards_rise
from groupwise.diagnosis.rule.evaluation import num_evaluated
from groupwise.diagnosis.series import Series
from groupwise.diagnosis.stage import Stage

FEW = 5
ERRORS = 3.0
CLOSED = 0.1
"""Share of the gap that a rise must close to be one."""


@final
@dataclass(frozen=True)
class StartGap:
    """The first rewards beside an evaluation of the same policy.

    Args:
        reward: of the first training steps.
        spread: the standard deviation of rewards inside groups, of the same steps.
        evaluation: the reward of the evaluations, with at least two values.
        side: 1 where the evaluation is to lie above the rewards, -1 where below.
    """

    reward: Series
    spread: Series
    evaluation: Series
    side: int = 1

    @property
    def sampled(self) -> float:
        """The mean of the first training rewards, and two standard errors towards the evaluation."""
        return self.reward.mean + self.side * 2 * self.reward.error

    @property
    def start(self) -> float:
        """The first evaluation."""
        return self.evaluation.values[0]

    @property
    def evidence(self) -> list[Series]:
        """The three series."""
        return [self.reward, self.spread, self.evaluation]

    @property
    def has_fallen(self) -> bool:
        """Whether the evaluation has lost a quarter of its lead since."""
        return self.evaluation.values[-1] <= self.start - 0.25 * (self.start - self.sampled)

    def is_closing(self, stage: Stage) -> bool:
        """Returns whether the rewards rise, and have come a tenth of the way to the evaluation: noise rises and falls.

        Args:
            stage: of the rewards.
        """
        last = stage.last("reward")
        risen = 0.0 if last is None else self.side * (last.mean - self.reward.mean)
        return rewards_rise(stage) and risen > CLOSED * self.side * (self.start - self.sampled)

    def is_wide(self, stage: Stage, level: float, spreads: float, share: float = 0.2) -> bool:
        """Returns whether a level of the evaluation lies beyond the first rewards by more than the spread inside
        groups, the size of both, and the luck of the draw of its members explain.

        Args:
            stage: of the rewards.
            level: of the evaluation.
            spreads: how many standard deviations inside groups the gap must exceed.
            share: of the larger of the two that the gap must exceed.
        """
        gap = self.side * (level - self.sampled)
        if gap <= max(spreads * self.spread.mean, share * max(abs(self.start), abs(self.sampled))):
            return False
        count, spread = num_evaluated(stage), stage.first("rewards_std", FEW)
        # Before any noise members may differ more than those that are sampled: by the gap itself, as far as is known.
        size = max(gap, spread.mean if spread is not None else 0.0)
        return count is None or gap * count**0.5 > ERRORS * size


def start_gap(stage: Stage, side: int = 1) -> StartGap | None:
    """Returns the gap of a stage; `None` where there was no evaluation before its first step, or only one.

    Args:
        stage: with rewards and evaluations.
        side: 1 for the lowest of several evaluations, to lie above the rewards; -1 for the highest, to lie below.
    """
    reward, spread = stage.first("reward", FEW), stage.first("reward_std", FEW)
    nearest = min(stage.evaluated_rewards(), key=lambda seen: side * seen.values[0], default=None)
    if reward is None or spread is None or nearest is None or nearest.steps[0] >= reward.steps[0]:
        return None
    return StartGap(reward, spread, nearest, side)
