"""Answers that grow without being rewarded for it."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number, rewards_rise
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage


def _look(stage: Stage) -> Seen | None:
    ends = stage.ends("completions/mean_length")
    reward = stage.last("reward")
    if ends is None or reward is None:
        return None
    start, last = ends
    if last.mean < 1.5 * start.mean or not last.above(start) or rewards_rise(stage):
        return None
    sentence = (
        f"Members grew from {number(start.mean)} to {number(last.mean)} decisions, and the reward did not rise with"
        f" them ({number(reward.mean)} now)."
    )
    return Seen(sentence, [start, last, reward])


LENGTH_CREEP = Rule(
    "length_creep",
    "warning",
    "Why do the answers get longer and longer?",
    ("completions/mean_length", "reward"),
    f"the mean length of the last {WINDOW} steps is at least 1.5 times that of the first {WINDOW}, and the reward has"
    " not risen",
    "If the loss is a mean over each member's decisions, a long wrong answer costs little per token, so length"
    " grows by itself. Length also grows if a reward pays for it by accident.",
    "Set aggregation.kind = token_mean or fixed_length (as methods dapo and dr_grpo do), add a reward of kind"
    " soft_overlong, or look at the rewards of long answers.",
    _look,
    phrase="answers grow longer",
    follows=("reward_follows_length", "weight_decay_too_high", "policy_becomes_random"),
)
