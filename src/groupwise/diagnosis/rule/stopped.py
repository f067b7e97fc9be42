"""A stage that early stopping ends before anything has counted as a gain."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.series import Series
from groupwise.diagnosis.stage import Stage

_PATIENCE, _MIN_GAIN = 5, 0.0
"""What `train.early_stopping` sets where a table of a stage leaves it out."""
_RISE = 0.01
_STILL_LEARNING = "The metric that early stopping watches stands still, but the policy still learns to earn more."
_GOAL = (
    "Look at train.metric and train.metric_goal: do they measure what you want? If so, raise"
    " train.early_stopping.patience."
)


def _look(stage: Stage) -> Seen | None:
    goal = stage.goal
    if goal is None or not stage.setting("train.early_stopping"):
        return None
    patience, least = (stage.setting(f"train.early_stopping.{name}") for name in ("patience", "min_gain"))
    patience, least = _PATIENCE if patience is None else patience, _MIN_GAIN if least is None else least
    sign = -1.0 if stage.setting("train.metric_goal") == "min" else 1.0
    best = _best(goal.values, sign, least)
    # A stage that goes on after that many does not stop early.
    if len(goal) - 1 - best != patience:
        return None
    name = goal.metric.removeprefix("eval/")
    if best > 0:
        return _while_the_reward_rises(stage, goal, best)
    most = max(sign * (value - goal.values[0]) for value in goal.values[1:])
    return Seen(
        f"Early stopping ends the stage after {patience} evaluations without a gain: {name} gained {number(most)} at"
        f" most, and more than {number(least)} counts (train.early_stopping.min_gain).",
        [goal],
    )


def _best(values: Sequence[float], sign: float, least: float) -> int:
    """Returns the place of the last evaluation that early stopping counts as a gain; 0 where none is."""
    best = 0
    for place, value in enumerate(values):
        if sign * (value - values[best]) > least:
            best = place
    return best


def _while_the_reward_rises(stage: Stage, goal: Series, best: int) -> Seen | None:
    """Judges a stage that had gained something: whether the reward of the same evaluations has risen since by more
    than a hundredth.
    """
    for seen in stage.evaluated_rewards():
        if seen.metric == goal.metric or seen.steps != goal.steps:
            continue
        then, now = seen.values[best], seen.values[-1]
        if now > then + _RISE * abs(then):
            return Seen(
                f"Early stopping ends the stage because {goal.metric.removeprefix('eval/')} has gained nothing since"
                f" step {goal.steps[best]}, while {seen.metric.removeprefix('eval/')} rose from {number(then)} to"
                f" {number(now)}.",
                [goal, seen],
                means=_STILL_LEARNING,
                advice=_GOAL,
            )
    return None


STOPPED_EARLY = Rule(
    "stopped_early",
    "warning",
    "Why did my run end so early?",
    ("eval/NAME",),
    "`train.early_stopping` is set, and as many evaluations as its patience have passed in which the metric never"
    " exceeded its first value by more than min_gain; or in which it never exceeded its best value, while the"
    f" reward of the evaluations rose by more than {_RISE:g} of its value",
    "Early stopping ends the stage before anything has counted as a gain. The policy has hardly been trained, or"
    " the metric cannot gain as much as is asked.",
    "Write train.early_stopping.min_gain in the unit of train.metric (0.01 for a hundredth), raise"
    " train.early_stopping.patience, or evaluate less often (train.evaluate_every).",
    _look,
    phrase="early stopping ends the run too soon",
    follows=(
        "learning_rate_too_low",
        "learning_rate_too_high",
        "weights_unchanged",
        "weights_rewritten",
        "no_update",
        "reward_constant",
        "reward_ignores_answer",
        "reward_is_noise",
        "reward_follows_place",
        "reward_flat",
        "training_unlike_held_out",
        "judge_falls",
        "all_flat",
        "samples_alike",
        "exploration_too_strong",
        "divergence_holds",
        "policy_term_drowned",
    ),
)
