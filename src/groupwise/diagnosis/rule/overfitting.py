"""A reward that rises on the training prompts alone."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.stage import Stage

_EPOCHS = 5.0
_RISE = 0.25


def _look(stage: Stage) -> Seen | None:
    epoch, ends, spread = stage.last("epoch", 1), stage.ends("reward"), stage.first("reward_std")
    if epoch is None or ends is None or spread is None or epoch.mean < _EPOCHS:
        return None
    start, last = ends
    if not last.above(start) or last.mean - start.mean < _RISE * spread.mean:
        return None
    for seen in stage.evaluated_rewards():
        if seen.values[-1] <= seen.values[0]:
            return Seen(
                f"The reward rose from {number(start.mean)} to {number(last.mean)} on training prompts that were drawn"
                f" {epoch.mean:.0f} times, while {seen.metric.removeprefix('eval/')} of the evaluations went from"
                f" {number(seen.values[0])} to {number(seen.values[-1])}.",
                [start, last, seen],
            )
    return None


LEARNS_BY_HEART = Rule(
    "learns_by_heart",
    "warning",
    "Why does my reward rise and the evaluation not?",
    ("epoch", "reward", "reward_std", "eval/NAME"),
    f"after {_EPOCHS:g} passes over the prompts the reward has risen by more than two standard errors and by"
    f" {_RISE:g} of its first spread inside groups, but the reward of the evaluations is not above its first value",
    "The policy learns these prompts by heart: what it learns does not carry over to prompts that it has not seen.",
    "Train on more prompts, stop at the step of the best evaluation (`best/`), or set divergence.beta above 0.",
    _look,
    phrase="the policy learns its prompts by heart",
    follows=(
        "held_out_unlike_training",
        "average_lags",
        "judge_falls",
        "judge_disagrees",
        "prompts_come_back",
        "evaluation_repeats",
    ),
)
