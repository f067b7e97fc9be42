"""Evaluations that give the same numbers while the policy learns."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_RISE = 0.5
_ERRORS = 4.0
_METRICS = 2


def _look(stage: Stage) -> Seen | None:
    ends, spread = stage.ends("reward", WINDOW // 2), stage.first("reward_std", WINDOW // 2)
    again = [seen for seen in stage.evaluated if len(seen) > 1]
    if ends is None or spread is None or any(len(set(seen.values)) > 1 for seen in again):
        return None
    # None and all of the prompts, or the limit of the length, may well come again.
    partial = [seen for seen in again if not seen.values[0].is_integer()]
    start, last = ends
    if not last.above(start, _ERRORS) or last.mean - start.mean <= _RISE * spread.mean:
        return None
    low = [seen for seen in partial if seen.metric.endswith("/reward") and seen.values[0] < last.mean]
    if len(partial) < _METRICS or not low or low[0].steps[-1] <= last.steps[0]:
        return None
    # What rose before the first evaluation says nothing about later ones.
    if low[0].steps[0] > start.steps[-1]:
        return None
    seen = low[0]
    return Seen(
        f"{len(seen)} evaluations gave the same numbers to the last digit ({number(seen.values[0])} for"
        f" {seen.metric.removeprefix('eval/')}), while the reward rose from {number(start.mean)} to"
        f" {number(last.mean)}.",
        [seen, start, last],
    )


EVALUATION_REPEATS = Rule(
    "evaluation_repeats",
    "fault",
    "Why does the evaluation never change?",
    ("reward", "reward_std", "eval/NAME"),
    "every evaluated metric has had the same value, to the last digit, since the first evaluation, and at least"
    f" {_METRICS} of them are not whole numbers; an evaluation lies in the first {WINDOW // 2} steps or before them,"
    f" and one in the last {WINDOW // 2}; the reward has risen by {_ERRORS:g} standard errors and {_RISE:g} of the"
    " spread inside groups, and lies above an evaluated reward",
    "A policy that earns more writes other answers, also to evaluated prompts. So the evaluation does not use the"
    " policy that is trained: answers or scores come from a cache whose key does not contain the weights, or from"
    " the model that training began with.",
    "Put the step or a hash of the weights into the cache's key, or empty the cache after every update. Give the"
    " evaluation the model that is trained, with its adapter active (`groupwise sample` answers with the weights"
    " as they are).",
    _look,
    phrase="the evaluation repeats itself",
    follows=("average_lags", "weights_unchanged", "weights_rewritten", "generator_drifts", "ratio_not_one"),
)
