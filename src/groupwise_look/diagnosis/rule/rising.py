"""Whether rewards rise and judges fall, beyond the luck of the draw."""

import math
from dataclasses import dataclass
from typing import final

from groupwise_look.diagnosis.rule.base import rewards_rise
from groupwise_look.diagnosis.series import Series
from groupwise_look.diagnosis.stage import Stage

EVALUATION_ERRORS = 2.0
"""The number of standard errors that a rise of an evaluation must exceed, where the number of measured members is
known.
"""
_LEAST = 0.01
"""The share of the first value that a rise must exceed."""
FEW = 5
"""The number of steps that show what the policy of the start earned."""
_COUNTS = (
    *("domain.evaluation.num_prompts", "domain.evaluation.num_images"),
    *("domain.data.num_held_out", "domain.source.num_held_out"),
)
"""Settings that bound how many members an evaluation measures."""


def num_evaluated(stage: Stage) -> int | None:
    """Returns how many members an evaluation measures at least; `None` where the settings do not state it.

    Args:
        stage: the stage whose settings are read.
    """
    counts = [count for key in _COUNTS if isinstance(count := stage.setting(key), int) and count > 0]
    return min(counts, default=None)


def evaluation_error(stage: Stage) -> float:
    """Returns the standard error of the difference of two evaluated rewards; 0 where it is not known.

    `s sqrt(2 / n)` with the standard deviation `s` of all members' first rewards and `n` members an evaluation. Two
    evaluations mostly measure the same prompts, so that the error is smaller: this one is a bound.

    Args:
        stage: the stage of the evaluations.
    """
    count, spread = num_evaluated(stage), stage.first("rewards_std", FEW)
    return 0.0 if count is None or spread is None else spread.mean * math.sqrt(2 / count)


def evaluations_rise(stage: Stage) -> bool:
    """Returns whether the newest evaluation of a reward is above its first by more than a hundredth of it."""
    rewards = [seen.values for seen in stage.evaluated_rewards()]
    return any(values[-1] > values[0] + _LEAST * abs(values[0]) for values in rewards)


def evaluations_stay(stage: Stage) -> bool:
    """Returns whether the reward was evaluated again and did not rise beyond luck.

    Several evaluations of a step measure one policy on the same prompts: their mean rise is judged, since of many one
    or another is higher.

    Args:
        stage: the stage of the evaluations.
    """
    rewards = [seen.values for seen in stage.evaluated_rewards()]
    if not rewards:
        return False
    rise = math.fsum(values[-1] - values[0] for values in rewards) / len(rewards)
    start = math.fsum(abs(values[0]) for values in rewards) / len(rewards)
    return rise <= max(_LEAST * start, EVALUATION_ERRORS * evaluation_error(stage))


def no_judge_fell(stage: Stage) -> bool:
    """Returns whether judges, which are not trained on, are measured, and none has fallen."""
    judge_ends = [
        ends for name in stage.rewards(weighted=False) if (ends := stage.ends(f"rewards/{name}/mean")) is not None
    ]
    evaluated = stage.evaluated_judges()
    return (
        bool(judge_ends or evaluated)
        and not any(start.above(last) for start, last in judge_ends)
        and all(series.values[-1] >= series.values[0] for series in evaluated)
    )


# How far the reward has risen at most, beside what it could have risen by.

_SHARE = 0.1
"""A rise below this share of the spread inside groups is too small to count."""
_SHARE_OF_REACH = 0.15
"""A rise below this share of what the policy could have gained with its KL is too small to count. Sound runs gain a
quarter to two thirds of it.
"""


@final
@dataclass(frozen=True)
class Rise:
    """The first and the newest rewards, and the spread inside groups.

    Args:
        start, last: as many steps at either end of the stage.
        spread: the standard deviation of rewards inside groups, of the first steps.
        reach: what the policy could have gained, in units of `spread`; `None` where no KL shows it.
    """

    start: Series
    last: Series
    spread: Series
    reach: float | None

    @property
    def most(self) -> float:
        """The difference of the two means with two standard errors added."""
        return self.last.mean - self.start.mean + 2.0 * math.hypot(self.start.error, self.last.error)

    @property
    def is_none(self) -> bool:
        """Whether it is certain that the reward has not risen by an amount that counts.

        This is more than not having seen a rise. A small KL leaves little to gain, so that a reward which does not rise
        then shows nothing.
        """
        share = _SHARE if self.reach is None else _SHARE_OF_REACH * min(self.reach, 1.0)
        return self.most < share * self.spread.mean

    @property
    def evidence(self) -> list[Series]:
        """The three series."""
        return [self.start, self.last, self.spread]


def rise(stage: Stage, count: int) -> Rise | None:
    """Returns the rise of a stage's reward; `None` where there are too few steps, or groups have no spread.

    Args:
        stage: the stage of the rewards.
        count: steps at either end.
    """
    ends, spread = stage.ends("reward", count), stage.first("reward_std")
    return None if ends is None or spread is None or spread.mean <= 0 else Rise(*ends, spread, _reach(stage))


def _reach(stage: Stage) -> float | None:
    """Returns `sqrt(2 KL)`, with the KL of a whole member in nats: a policy that lies so far from its reference earns
    at most this many standard deviations more than it.

    The bound is that of Donsker and Varadhan for rewards whose tails are not heavier than a normal distribution's. It
    says nothing where the reference moves, or where the KL is that to the policy that sampled.
    """
    kl, length = stage.last("kl"), stage.last("completions/mean_length")
    kind = stage.setting("reference.kind")
    if kl is None or length is None or kind not in (None, "frozen"):
        return None
    if stage.setting("divergence.against") == "behaviour":
        return None
    return math.sqrt(2 * max(kl.mean, 0.0) * max(length.mean, 1.0))


# How far the first training rewards lie from what the same policy earned in its first evaluation.

_START_GAP_ERRORS = 3.0
CLOSED = 0.1
"""The share of the gap that a rise must close to count."""


@final
@dataclass(frozen=True)
class StartGap:
    """Compares the first rewards with an evaluation of the same policy.

    Args:
        reward: the reward of the first training steps.
        spread: the standard deviation of rewards inside groups, of the same steps.
        evaluation: the reward of the evaluations, with at least two values.
        side: 1 where the evaluation is to be above the rewards, -1 where below.
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
            stage: the stage of the rewards.
        """
        last = stage.last("reward")
        risen = 0.0 if last is None else self.side * (last.mean - self.reward.mean)
        return rewards_rise(stage) and risen > CLOSED * self.side * (self.start - self.sampled)

    def is_wide(self, stage: Stage, level: float, spreads: float, share: float = 0.2) -> bool:
        """Returns whether a level of the evaluation is beyond the first rewards by more than the spread inside
        groups, the size of both, and the luck of the draw of its members explain.

        Args:
            stage: the stage of the rewards.
            level: the level of the evaluation.
            spreads: how many standard deviations inside groups the gap must exceed.
            share: the share of the larger of the two that the gap must exceed.
        """
        gap = self.side * (level - self.sampled)
        if gap <= max(spreads * self.spread.mean, share * max(abs(self.start), abs(self.sampled))):
            return False
        count, spread = num_evaluated(stage), stage.first("rewards_std", FEW)
        # Before any noise members may differ more than those that are sampled: by the gap itself, as far as is known.
        size = max(gap, spread.mean if spread is not None else 0.0)
        return count is None or gap * count**0.5 > _START_GAP_ERRORS * size


def start_gap(stage: Stage, side: int = 1) -> StartGap | None:
    """Returns the gap of a stage; `None` where there was no evaluation before its first step, or only one.

    Args:
        stage: with rewards and evaluations.
        side: 1 for the lowest of several evaluations, to be above the rewards; -1 for the highest, to be below.
    """
    reward, spread = stage.first("reward", FEW), stage.first("reward_std", FEW)
    nearest = min(stage.evaluated_rewards(), key=lambda seen: side * seen.values[0], default=None)
    if reward is None or spread is None or nearest is None or nearest.steps[0] >= reward.steps[0]:
        return None
    return StartGap(reward, spread, nearest, side)
