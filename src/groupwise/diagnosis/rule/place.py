"""A reward that follows the place at which a member was scored."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.series import WINDOW, Series
from groupwise.diagnosis.stage import Stage

_LEAST = 0.25
_ERRORS = 6.0
"""Standard errors: with two groups a step, 19 of 20 correlations have one sign by luck once in 25,000 windows."""
_METRICS = {
    "groups/place_correlation": "a member's reward and its place in the group",
    "batch/place_correlation": "a group's mean reward and its place in the batch of its process",
}


def _look(stage: Stage) -> Seen | None:
    # Adaptive sampling draws prompts of middling difficulty first.
    metrics = list(_METRICS)[: 1 if stage.setting("train.adaptive_sampling") else 2]
    for metric in metrics:
        start, last = stage.first(metric), stage.last(metric)
        if start is None or last is None or not (_correlated(start) and _correlated(last)):
            continue
        if start.mean * last.mean < 0:
            continue
        return Seen(
            f"{_METRICS[metric][:1].upper()}{_METRICS[metric][1:]} are correlated: {number(last.mean)} over the last"
            f" {WINDOW} steps, {number(start.mean)} over the first.",
            [start, last],
        )
    return None


def _correlated(series: Series) -> bool:
    return abs(series.mean) >= _LEAST and abs(series.mean) > _ERRORS * series.error


REWARD_FOLLOWS_PLACE = Rule(
    "reward_follows_place",
    "warning",
    "Does my reward depend on the order in which members are scored?",
    tuple(_METRICS),
    f"the correlation of reward and place is at least {_LEAST} in size and {_ERRORS:g} standard errors from 0,"
    f" both over the first and over the last {WINDOW} steps, with the same sign; with `train.adaptive_sampling`"
    " only places in the group are judged",
    "Prompts come in random order and the members of a group are drawn alike, so a reward of prompt and answer"
    " cannot depend on places. Something else is in the reward: an index, a counter, a time, or a cache that"
    " fills.",
    "Score one member twice, at the start and at the end of a batch (`groupwise.testing.check_reward` does this)."
    " Remove from the reward function what counts or remembers.",
    _look,
    phrase="the reward follows the place in the batch",
    # Prompts that come in one order have places of their own.
    follows=("prompts_come_back",),
)
