"""Sampling so noisy that what is tried says nothing about the policy."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number, rewards_rise
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_FEW = 5
_BELOW = 0.75
_HOT = 3.0


def _look(stage: Stage) -> Seen | None:
    if stage.num_steps < WINDOW or rewards_rise(stage):
        return None
    # Before the first update; and below every way in which the evaluation draws.
    reward, spread = stage.first("reward", 1), stage.first("reward_std", _FEW)
    measured = [seen for seen in stage.evaluated if seen.metric.endswith("/reward") and len(seen) > 1]
    least = min(measured, key=lambda seen: seen.values[0], default=None)
    if reward is not None and spread is not None and least is not None and _beginning(stage, least.steps[0]):
        gap = least.values[0] - reward.mean
        # Where the evaluation has fallen as well, it is the policy or the data that is broken.
        stays = least.values[-1] > least.values[0] - 0.25 * gap
        if stays and gap > max(_BELOW * spread.mean, 0.2 * abs(least.values[0])):
            return Seen(
                f"What was sampled in the first step earned {number(reward.mean)}; without that noise the"
                f" policy earned {number(least.values[0])} ({least.metric.removeprefix('eval/')}). The reward has not"
                " risen.",
                [reward, spread, least],
            )
    temperature = stage.last("settings/temperature", _FEW)
    if temperature is not None and temperature.mean >= _HOT:
        return Seen(
            f"Members are sampled at temperature {number(temperature.mean)}, and the reward has not risen.",
            [temperature],
        )
    return None


def _beginning(stage: Stage, step: int) -> bool:
    """Returns whether an evaluation was made where the stage began."""
    first = stage.first("reward", 1)
    return first is not None and step < first.steps[0]


EXPLORATION_TOO_STRONG = Rule(
    "exploration_too_strong",
    "warning",
    "Is my sampling too random?",
    ("reward", "reward_std", "eval/NAME", "settings/temperature"),
    f"the reward of the first step lies below every one of the evaluation before it by {_BELOW} of the spread"
    f" inside groups and a fifth, or the temperature is {_HOT:g} or more; and after {WINDOW} steps the"
    " reward has not risen; the first only where the evaluation stays",
    "Members are drawn so far from what the policy would do that their rewards hardly depend on the policy: groups"
    " compare noise.",
    "Lower domain.sampling.temperature (domain.temperature of a selector) to about 1, domain.policy.sigma or the"
    " sampler's noise, until members earn nearly what the evaluation does.",
    _look,
    phrase="sampling is too random",
    follows=("reward_ignores_answer", "reward_constant", "reward_missing", "samples_alike", "all_truncated"),
)
