"""Sampling so noisy that what is tried says nothing about the policy."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number, rewards_rise
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_FEW = 5
_BELOW = 0.75
_HOT = 3.0
_ERRORS = 3.0
_COUNTS = (
    *("domain.evaluation.num_prompts", "domain.evaluation.num_images"),
    *("domain.data.num_held_out", "domain.source.num_held_out"),
)
"""Settings that bound how many members an evaluation measures."""


def _look(stage: Stage) -> Seen | None:
    if stage.num_steps < WINDOW or rewards_rise(stage):
        return None
    temperature = stage.last("settings/temperature", _FEW)
    if temperature is None or temperature.mean > 1:
        # At 1 or less texts are drawn from the policy itself, without noise of the sampler.
        seen = _noisy(stage)
        if seen is not None:
            return seen
    if temperature is not None and temperature.mean >= _HOT:
        return Seen(
            f"Members are sampled at temperature {number(temperature.mean)}, and the reward has not risen.",
            [temperature],
        )
    return None


def _noisy(stage: Stage) -> Seen | None:
    # Every evaluation lies above all of the first steps, so that neither an evaluation of few members nor one unlucky
    # step can look like noise of the sampler.
    reward, spread = stage.first("reward", _FEW), stage.first("reward_std", _FEW)
    measured = [seen for seen in stage.evaluated if seen.metric.endswith("/reward") and len(seen) > 1]
    least = min(measured, key=lambda seen: seen.values[0], default=None)
    if reward is not None and spread is not None and least is not None and least.steps[0] < reward.steps[0]:
        start, sampled = least.values[0], max(reward.values)
        # Where the evaluation has fallen as well, it is the policy or the data that is broken.
        stays = least.values[-1] > start - 0.25 * (start - sampled)
        gap = min(least.values) - sampled
        if stays and gap > max(_BELOW * spread.mean, 0.2 * abs(start)) and not _is_luck(stage, gap):
            return Seen(
                f"What was sampled in the first {_FEW} steps earned {number(sampled)} at most; without that noise the"
                f" policy earned {number(start)} ({least.metric.removeprefix('eval/')}). The reward has not risen.",
                [reward, spread, least],
            )
    return None


def _is_luck(stage: Stage, gap: float) -> bool:
    """Returns whether the few members of an evaluation may lie so far from all members by the luck of their draw."""
    counts = [count for key in _COUNTS if isinstance(count := stage.setting(key), int) and count > 0]
    spread = stage.first("rewards_std", _FEW)
    # Before any noise members may differ more than those that are sampled: by the gap itself, as far as is known.
    size = max(gap, spread.mean if spread is not None else 0.0)
    return bool(counts) and gap * min(counts) ** 0.5 <= _ERRORS * size


EXPLORATION_TOO_STRONG = Rule(
    "exploration_too_strong",
    "warning",
    "Is my sampling too random?",
    ("reward", "reward_std", "rewards_std", "eval/NAME", "settings/temperature"),
    f"every evaluation lies above the rewards of the first {_FEW} steps, by {_BELOW} of the spread inside groups and"
    f" by a fifth of the first evaluation, and by {_ERRORS:g} standard errors of as many members as the settings let it"
    f" measure, and has not fallen (of texts, at a temperature above 1); or the temperature is {_HOT:g} or more; and"
    f" after {WINDOW} steps the reward has not risen",
    "Members are drawn so far from what the policy would do that their rewards hardly depend on the policy: groups"
    " compare noise. Held-out prompts that are far easier than the trained ones raise the same finding.",
    "Lower domain.sampling.temperature (domain.temperature of a selector) to about 1, domain.policy.sigma or the"
    " sampler's noise, until members earn nearly what the evaluation does.",
    _look,
    phrase="sampling is too random",
    follows=("reward_ignores_answer", "reward_constant", "reward_missing", "samples_alike", "all_truncated"),
)
