"""Several rewards of which one decides alone, and rewards that are missing."""

from __future__ import annotations

import math

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.series import WINDOW, Series
from groupwise.diagnosis.stage import Stage


def _dominates(stage: Stage) -> Seen | None:
    names = stage.rewards(weighted=True)
    shares = {name: share for name in names if (share := stage.last(f"rewards/{name}/share")) is not None}
    if len(names) < 2 or not shares:
        return None
    dominant = max(shares, key=lambda name: shares[name].mean)
    # A part that no longer varies is done, not drowned.
    others = [
        name
        for name in names
        if name != dominant
        and (std := stage.last(f"rewards/{name}/std")) is not None
        and std.mean > 0.05 * _size(stage, name, std)
    ]
    if shares[dominant].mean <= 0.95 or not others:
        return None
    spreads = [series for name in (dominant, *others) if (series := stage.last(f"rewards/{name}/std")) is not None]
    weights = [
        series for name in (dominant, *others) if (series := stage.last(f"rewards/{name}/weight", 1)) is not None
    ]
    beside = ", ".join(
        f"{name}: spread {number(spread.mean)}, weight {number(weight.mean)}"
        for name, spread, weight in zip((dominant, *others), spreads, weights, strict=False)
    )
    share = shares[dominant].mean
    sentence = f"Reward {dominant} makes {share:.1%} of what the members of a group are compared by ({beside})."
    return Seen(sentence, [shares[dominant], *spreads])


def _size(stage: Stage, name: str, std: Series) -> float:
    """Returns the scale of a reward: its mean and its spread together."""
    mean = stage.last(f"rewards/{name}/mean")
    return math.hypot(mean.mean if mean else 0.0, std.mean)


def _missing(stage: Stage) -> Seen | None:
    shares = {name: share for name in _names(stage) if (share := stage.last(f"rewards/{name}/missing")) is not None}
    worst = max(shares, key=lambda name: shares[name].mean, default="")
    if not worst or shares[worst].mean <= 0.2:
        return None
    return Seen(
        f"Reward {worst} had no value for {shares[worst].mean:.0%} of the members of the last {WINDOW} steps.",
        [shares[worst]],
    )


def _names(stage: Stage) -> list[str]:
    return [*stage.rewards(weighted=True), *stage.rewards(weighted=False)]


REWARD_DOMINATES = Rule(
    "reward_dominates",
    "warning",
    "Why does one of my rewards not improve?",
    ("rewards/NAME/share", "rewards/NAME/std", "rewards/NAME/weight"),
    f"one of several weighted rewards makes more than 95 % of the variance inside groups over {WINDOW} steps, while"
    " another still varies",
    "Advantages compare the weighted sum of the rewards: a reward of small spread has hardly any effect"
    " beside one of large spread, however important it is.",
    "Choose domain.rewards.NAME.weight so that weight times spread is similar for all rewards, or set"
    " advantage.kind = per_reward (method gdpo), which divides each reward by its own spread.",
    _dominates,
    phrase="one reward drowns the others",
)
REWARD_MISSING = Rule(
    "reward_missing",
    "warning",
    "Why is the reward missing for many members?",
    ("rewards/NAME/missing",),
    f"more than 20 % of the members of {WINDOW} steps have no value of a reward (it returned none, timed out or"
    " raised)",
    "Members without this reward are compared by the other rewards alone, or not at all; those that still"
    " have it may be a biased selection.",
    "Raise domain.rewards.NAME.timeout_seconds, look at the reward's other settings, and run `groupwise"
    " check`, which scores one group and shows it.",
    _missing,
    phrase="rewards are missing",
)
