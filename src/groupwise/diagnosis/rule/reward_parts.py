"""Several rewards of which one decides alone, and rewards that are missing."""

from __future__ import annotations

import math

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.series import WINDOW, Series
from groupwise.diagnosis.stage import Stage

_FEW = 5


def _dominates(stage: Stage) -> Seen | None:
    return _dominates_now(stage) or _dominated(stage)


def _dominated(stage: Stage) -> Seen | None:
    """Judges the stage's first steps: a reward that decided alone then, and whose way was so short that it no longer
    varies, while those that it drowned have not risen.
    """
    names = stage.rewards(weighted=True)
    shares = {name: share for name in names if (share := stage.first(f"rewards/{name}/share", _FEW)) is not None}
    if len(names) < 2 or not shares or stage.num_steps < 2 * WINDOW:
        return None
    dominant = max(shares, key=lambda name: shares[name].mean)
    if shares[dominant].mean <= 0.95:
        return None
    drowned = {name: ends for name in names if name != dominant and (ends := stage.ends(f"rewards/{name}/mean", _FEW))}
    spreads = {name: std for name in drowned if (std := stage.first(f"rewards/{name}/std", _FEW)) is not None}
    for name, (start, last) in drowned.items():
        if name in spreads and spreads[name].mean > 0 and not last.above(start):
            return Seen(
                f"In the first {_FEW} steps reward {dominant} made {shares[dominant].mean:.1%} of what the members of a"
                f" group are compared by, and {name} has not risen since ({number(start.mean)} at first,"
                f" {number(last.mean)} now).",
                [shares[dominant], start, last],
            )
    return None


def _dominates_now(stage: Stage) -> Seen | None:
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
    # The parts of the others may be negative: they lower the sum where it is high.
    made = f"{share:.1%}" if share < 1 else "all"
    sentence = f"Reward {dominant} makes {made} of what the members of a group are compared by ({beside})."
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
    ("rewards/NAME/share", "rewards/NAME/std", "rewards/NAME/weight", "rewards/NAME/mean"),
    f"over {WINDOW} steps one of several weighted rewards makes more than 95 % of the variance inside groups,"
    f" while another still varies; or one did over the first {_FEW} steps, and another has not risen since",
    "Advantages compare the weighted sum of the rewards. A reward of small spread has hardly any effect beside"
    " one of large spread, however important it is.",
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
    "Raise domain.rewards.NAME.timeout_seconds, look at the reward's other settings, and run `groupwise check`:"
    " it scores one group and shows the values.",
    _missing,
    phrase="rewards are missing",
)
