"""Groups whose members all got the same reward: nothing to compare."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage


def _look(stage: Stage) -> Seen | None:
    flat, reward, first = stage.last("frac_reward_zero_std"), stage.last("reward"), stage.first("reward")
    if flat is None or reward is None or first is None or flat.mean < 0.95:
        return None
    what = f"{flat.mean:.0%} of the groups of the last {WINDOW} steps had equal rewards (mean reward {number(reward.mean)})."
    if reward.above(first) and reward.mean > first.mean:
        means = f"The reward has risen from {number(first.mean)} and the members of a group now all earn the same: what the prompts could teach is learnt."
        return Seen(what, [flat, reward], "note", means, "Stop here, or go on with harder prompts or a finer reward.")
    return Seen(what, [flat, reward])


ALL_FLAT = Rule(
    "all_flat",
    "fault",
    "Why does nothing happen? Why is the loss exactly 0?",
    ("frac_reward_zero_std", "reward"),
    f"at least 95 % of the groups are flat over {WINDOW} steps; a note where the reward had risen before",
    "A flat group has advantage 0 for every member: it teaches nothing. Prompts all too hard or all too easy look alike here; the mean reward tells which.",
    "Easier or harder prompts, a reward with more levels, a higher domain.sampling.temperature, a larger train.group_size, or a supervised stage before.",
    _look,
)
