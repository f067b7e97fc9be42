"""Whether the reward of the evaluations rises, beyond the luck of the draw."""

from __future__ import annotations

import math

from groupwise.diagnosis.stage import Stage

ERRORS = 2.0
"""Standard errors that a rise of an evaluation must exceed where it is known how many members were measured."""
_LEAST = 0.01
"""Share of the first value that a rise must exceed."""
_FEW = 5
_COUNTS = (
    *("domain.evaluation.num_prompts", "domain.evaluation.num_images"),
    *("domain.data.num_held_out", "domain.source.num_held_out"),
)
"""Settings that bound how many members an evaluation measures."""


def num_evaluated(stage: Stage) -> int | None:
    """Returns how many members an evaluation measures at least; `None` where the settings do not say.

    Args:
        stage: whose settings are read.
    """
    counts = [count for key in _COUNTS if isinstance(count := stage.setting(key), int) and count > 0]
    return min(counts, default=None)


def luck(stage: Stage) -> float:
    """Returns the standard error of the difference of two evaluated rewards; 0 where it is not known.

    `s sqrt(2 / n)` with the standard deviation `s` of all members' first rewards and `n` members an evaluation. Two
    evaluations mostly measure the same prompts, so that the error is smaller: this one is a bound.

    Args:
        stage: of the evaluations.
    """
    count, spread = num_evaluated(stage), stage.first("rewards_std", _FEW)
    return 0.0 if count is None or spread is None else spread.mean * math.sqrt(2 / count)


def evaluations_rise(stage: Stage) -> bool:
    """Returns whether the newest evaluation of a reward lies above its first by more than a hundredth of it."""
    rewards = [seen.values for seen in stage.evaluated_rewards()]
    return any(values[-1] > values[0] + _LEAST * abs(values[0]) for values in rewards)


def evaluations_stay(stage: Stage) -> bool:
    """Returns whether the reward was evaluated again and did not rise beyond luck.

    Several evaluations of a step measure one policy on the same prompts: their mean rise is judged, since of many one
    or another is higher.

    Args:
        stage: of the evaluations.
    """
    rewards = [seen.values for seen in stage.evaluated_rewards()]
    if not rewards:
        return False
    rise = math.fsum(values[-1] - values[0] for values in rewards) / len(rewards)
    start = math.fsum(abs(values[0]) for values in rewards) / len(rewards)
    return rise <= max(_LEAST * start, ERRORS * luck(stage))
