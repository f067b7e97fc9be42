"""Prompts that earn nothing from the first step to the last, while all the others are learnt."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_FEW = 5
_WRONG = 0.25
_RISE = 0.2
_ERRORS = 4.0
_LEARNT = 0.8


def _look(stage: Stage) -> Seen | None:
    wrong, right = stage.ends("groups/all_wrong"), stage.ends("groups/all_right")
    at_once = stage.first("groups/all_wrong", _FEW)
    if wrong is None or right is None or at_once is None or wrong[1].mean < _WRONG:
        return None
    if any(start.above(wrong[1]) or wrong[1].above(start) for start in (at_once, wrong[0])):
        return None
    learnt = right[1].above(right[0], _ERRORS) and right[1].mean - right[0].mean >= _RISE
    if not learnt or right[1].mean < _LEARNT * (1 - wrong[1].mean):
        return None
    return Seen(
        f"In {wrong[0].mean:.0%} of the groups of the first {WINDOW} steps nobody earned anything, and in"
        f" {wrong[1].mean:.0%} of the last {WINDOW}, although those in which all members are right have grown from"
        f" {right[0].mean:.0%} to {right[1].mean:.0%}.",
        [*wrong, *right],
    )


PROMPTS_NEVER_EARN = Rule(
    "prompts_never_earn",
    "warning",
    "Why does my reward stop half way?",
    ("groups/all_wrong", "groups/all_right"),
    f"at least {_WRONG:.0%} of the groups of the last {WINDOW} steps earn nothing, and this share is within two"
    f" standard errors of that of the first {_FEW} and of the first {WINDOW} steps; the share of groups in which"
    f" all are right has grown by {_RISE:.0%} and by {_ERRORS:g} standard errors, and these are {_LEARNT:.0%} of"
    " all groups that earn something",
    "The policy has learnt what it could, but not from these prompts. Their answers in the data are wrong, or"
    " have another form than the reward compares with (a unit, another spelling), or they are out of this"
    " policy's reach.",
    "In rollouts/, look at groups that earn nothing: would you accept what they say? Then bring the answers of"
    " the data into one form, or let the reward forgive the difference (domain.rewards.NAME). Otherwise take"
    " easier prompts.",
    _look,
    phrase="a part of the prompts never earns anything",
    follows=(
        *("learning_rate_too_high", "ratio_always_one", "ratio_not_one", "generator_drifts", "weights_rewritten"),
        *("samples_alike", "entropy_collapse", "all_truncated", "limit_teaches_brevity", "prompts_truncated"),
        *("judge_disagrees", "judge_falls", "reward_is_noise", "reward_follows_place", "reward_ignores_answer"),
    ),
)
