"""Sampling so noisy that what is tried says nothing about the policy."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number, rewards_rise
from groupwise.diagnosis.rule.start_gap import CLOSED, ERRORS, FEW, start_gap
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_BELOW = 0.75
_HOT = 3.0


def _look(stage: Stage) -> Seen | None:
    temperature = stage.last("settings/temperature", FEW)
    hot = temperature if temperature is not None and temperature.mean >= _HOT else None
    is_below = hot is not None and _earns_less_than_without(stage)
    if stage.num_steps < WINDOW:
        return None
    if temperature is None or temperature.mean > 1:
        # At 1 or less texts are drawn from the policy itself, without noise of the sampler.
        seen = _noisy(stage)
        if seen is not None:
            return seen
    if hot is not None and (is_below or not rewards_rise(stage)):
        risen = " to what an evaluation earned before" if is_below else ""
        return Seen(
            f"Members are sampled at temperature {number(hot.mean)}, and the reward has not risen{risen}.", [hot]
        )
    return None


def _earns_less_than_without(stage: Stage) -> bool:
    """Returns whether members earn less than some evaluation before the first step did, however they have risen."""
    last = stage.last("reward", FEW)
    starts = [seen.values[0] for seen in stage.evaluated if seen.metric.endswith("/reward")]
    return last is not None and any(last.mean + 2 * last.error < start for start in starts)


def _noisy(stage: Stage) -> Seen | None:
    # Every evaluation lies above the first steps, so that one of few members cannot look like noise of the sampler.
    gap = start_gap(stage)
    # Where the evaluation has fallen as well, it is the policy or the data that is broken.
    if gap is None or gap.has_fallen or gap.is_closing(stage):
        return None
    if not gap.is_wide(stage, min(gap.evaluation.values), _BELOW):
        return None
    return Seen(
        f"Members of the first {FEW} steps earned {number(gap.reward.mean)} on average. In the evaluation before, the"
        f" same policy earned {number(gap.start)} ({gap.evaluation.metric.removeprefix('eval/')}). The reward has not"
        " risen.",
        gap.evidence,
    )


EXPLORATION_TOO_STRONG = Rule(
    "exploration_too_strong",
    "warning",
    "Is my sampling too random?",
    ("reward", "reward_std", "rewards_std", "eval/NAME", "settings/temperature"),
    f"either of two things. Every evaluation of the reward exceeds the mean reward of the first {FEW} steps, plus"
    f" two standard errors, by {_BELOW} of the spread inside groups, by a fifth of the larger of the two values"
    f" and by {ERRORS:g} standard errors of an evaluation; it has not fallen; and after {WINDOW} steps the reward"
    f" has risen by less than {CLOSED:.0%} of that gap (of texts, only at a temperature above 1). Or the"
    f" temperature is {_HOT:g} or more, and the reward has not risen or lies below the first evaluation",
    "Members are drawn so far from what the policy would do that their rewards hardly depend on the policy:"
    " groups compare noise. This is also found if evaluated prompts are far easier than trained ones.",
    "Lower domain.sampling.temperature (domain.temperature of a selector) to about 1, or lower"
    " domain.policy.sigma or the sampler's noise, until members earn nearly what the evaluation does.",
    _look,
    phrase="sampling is too random",
    follows=("reward_ignores_answer", "reward_constant", "reward_missing", "samples_alike", "all_truncated"),
)
