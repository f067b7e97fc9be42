"""A reward that differs between prompts or steps and never between the members of a group."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.series import Series
from groupwise.diagnosis.stage import Stage

_FEW = 10
_ROUNDING = 1e-6


def _look(stage: Stage) -> Seen | None:
    flat, reward, spread = (stage.first(name, _FEW) for name in ("frac_reward_zero_std", "reward", "groups/mean_std"))
    last_flat = stage.last("frac_reward_zero_std", _FEW)
    if flat is None or reward is None or last_flat is None or min(*flat.values, *last_flat.values) < 0.99:
        return None
    size = max(map(abs, reward.values)) * _ROUNDING
    between_steps = max(reward.values) - min(reward.values)
    if max(between_steps, spread.mean if spread else 0.0) <= size or _at_the_bounds(stage) > 0.5:
        return None
    distinct = stage.first("completions/distinct", _FEW)
    surprisal = stage.first("surprisal", _FEW)
    if distinct is not None and distinct.mean < 0.5 and (surprisal is None or surprisal.mean < 0.1):
        return None
    seen = f", although {distinct.mean:.0%} of the members are distinct" if distinct is not None else ""
    sentence = (
        f"From the first step on all members of every group earned the same{seen}, and rewards differ between prompts"
        f" or steps ({number(min(reward.values))} to {number(max(reward.values))} in the mean)."
    )
    evidence: list[Series] = [flat, reward, *(series for series in (spread, distinct) if series is not None)]
    return Seen(sentence, evidence)


def _at_the_bounds(stage: Stage) -> float:
    """Returns the share of groups that earned all or nothing, as too easy and too hard prompts do."""
    shares = [stage.first(name, _FEW) for name in ("groups/all_right", "groups/all_wrong")]
    return sum(share.mean for share in shares if share is not None)


REWARD_IGNORES_ANSWER = Rule(
    "reward_ignores_answer",
    "fault",
    "Does my reward look at the answer at all?",
    (
        "frac_reward_zero_std",
        "reward",
        "groups/mean_std",
        "groups/all_right",
        "groups/all_wrong",
        "completions/distinct",
        "surprisal",
    ),
    f"in the first and in the last {_FEW} steps all groups are flat, but rewards differ between prompts or steps,"
    " members differ, and less than half of the groups earn everything or nothing",
    "The reward depends on the prompt or the batch, not on what the member did. Its function reads a column of"
    " the data in place of the completion, or gives all members one number.",
    "Print what the function is given and what it returns for the members of one group (`groupwise check`). Let"
    " it read the completion, and return one number for each.",
    _look,
    phrase="the reward does not depend on what a member did",
    follows=("samples_alike",),
)
