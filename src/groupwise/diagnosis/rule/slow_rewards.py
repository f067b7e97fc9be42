"""Rewards that take the time of the run."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.stage import Stage

_FEW = 3
_SHARE = 0.75
_SECONDS = 1.0


def _look(stage: Stage) -> Seen | None:
    steps, rewards = stage.last("step_time", _FEW), stage.last("seconds/rewards", _FEW)
    if steps is None or rewards is None or steps.mean < _SECONDS or rewards.mean < _SHARE * steps.mean:
        return None
    sentence = f"Rewards take {number(rewards.mean)} of the {number(steps.mean)} seconds of a step"
    limit, meant = stage.setting("train.max_seconds"), stage.planned_steps
    if isinstance(limit, int | float) and meant and steps.mean * meant > 2 * limit:
        return Seen(
            f"{sentence}, so that the {number(limit)} seconds of train.max_seconds hold about"
            f" {limit / steps.mean:.0f} of {meant} steps.",
            [steps, rewards],
            "warning",
        )
    return Seen(f"{sentence}.", [steps, rewards])


REWARDS_ARE_SLOW = Rule(
    "rewards_are_slow",
    "note",
    "Why are my steps slow?",
    ("step_time", "seconds/rewards"),
    f"over {_FEW} steps of {_SECONDS:g} s or more, rewards take at least {_SHARE:.0%} of the time. This is a warning if"
    " `train.max_seconds` ends the stage before half of its steps",
    "The policy waits for its rewards: they are computed one after another, or by a slow or distant service.",
    "Score a batch in one call, or answer the calls of a batch at the same time (an async function). Cache what"
    " repeats. Or raise train.max_seconds.",
    _look,
    phrase="rewards take nearly all of the time",
)
