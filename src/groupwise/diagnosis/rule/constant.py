"""Rewards that give every member the same value, and members that are all alike, from the first step on."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.series import WINDOW, Series
from groupwise.diagnosis.stage import Stage

_FEW = 5
_ROUNDING = 1e-9
_SURE = 0.01
"""Nats a decision; a policy below it draws the same decision 99 times of a hundred."""
_DISTINCT = 1.5
"""Different members of a group."""


def _constant(stage: Stage) -> Seen | None:
    names = stage.rewards(weighted=True)
    constants = {name: means for name in names if (means := _only_value(stage, name)) is not None}
    if not constants:
        return None
    said = " and ".join(f"{name} has given every member {number(means[0].mean)}" for name, means in constants.items())
    sentence = f"Reward {said} since the stage began."
    evidence = [series for means in constants.values() for series in means]
    if len(constants) == len(names):
        return Seen(sentence, evidence)
    return Seen(sentence, evidence, "note", "This reward compares nothing: the other rewards decide.")


def _only_value(stage: Stage, name: str) -> tuple[Series, Series] | None:
    """Returns the first and the newest means of a reward where no member ever earned another value."""
    means = stage.first(f"rewards/{name}/mean"), stage.last(f"rewards/{name}/mean")
    spreads = stage.first(f"rewards/{name}/std"), stage.last(f"rewards/{name}/std")
    if means[0] is None or means[1] is None or spreads[0] is None or spreads[1] is None:
        return None
    values = [*means[0].values, *means[1].values]
    near = _ROUNDING * max(1.0, max(map(abs, values)))
    is_constant = max(values) - min(values) <= near and max(*spreads[0].values, *spreads[1].values) <= near
    return (means[0], means[1]) if is_constant else None


REWARD_CONSTANT = Rule(
    "reward_constant",
    "fault",
    "Why does every member earn the same?",
    ("rewards/NAME/mean", "rewards/NAME/std"),
    f"in the first {WINDOW} and in the last {WINDOW} steps of a stage, a reward gave every member the same value."
    " This is only a note if another weighted reward varies",
    "A reward that never varies compares nothing. Either its function reads the wrong column or looks for a form"
    " that no answer has, or every prompt is too hard or too easy for this policy.",
    "Run `groupwise check`: it scores one group and shows what the function is given and what it returns. Then"
    " mend the function, its columns, the form that the prompt asks for, or the prompts.",
    _constant,
    phrase="every member earns the same reward",
    follows=("prompts_truncated", "reward_missing", "all_truncated", "samples_alike", "weight_decay_too_high"),
)


def _alike(stage: Stage) -> Seen | None:
    surprisal, flat = stage.first("surprisal", _FEW), stage.first("frac_reward_zero_std", _FEW)
    if flat is None or flat.mean < 0.9:
        return None
    distinct, size = stage.first("completions/distinct", _FEW), stage.first("group_size", _FEW)
    if distinct is not None and size is not None and size.mean > 1 and distinct.mean * size.mean <= _DISTINCT:
        return Seen(
            f"In the first {_FEW} steps only {number(distinct.mean * size.mean)} of the {size.mean:.0f} members of a"
            f" group were different on average, and {flat.mean:.0%} of the groups were flat.",
            [distinct, flat],
        )
    if surprisal is None or min(surprisal.values) < 0 or surprisal.mean > _SURE:
        return None
    sentence = (
        f"In its first {_FEW} steps the stage's policy was sure of everything it did ({number(surprisal.mean)} nats a"
        f" decision), and {flat.mean:.0%} of the groups were flat."
    )
    return Seen(sentence, [surprisal, flat])


SAMPLES_ALIKE = Rule(
    "samples_alike",
    "warning",
    "Why are the members of a group copies of each other from the start?",
    ("surprisal", "frac_reward_zero_std", "completions/distinct", "group_size"),
    f"over the first {_FEW} steps at least 90 % of the groups are flat, and either a group has at most {_DISTINCT}"
    f" different members on average or the surprisal is below {_SURE} nats a decision",
    "Copies earn the same, so no group compares anything. Sampling is close to greedy, or the policy that the"
    " stage began with is sure of one answer.",
    "Sample more randomly: domain.sampling.temperature = 1, top_p = 1 and top_k = 0 for texts, a larger"
    " domain.policy.sigma or sampler.noise for images. Or begin with an earlier model, for example after a"
    " shorter supervised stage.",
    _alike,
    phrase="members are copies of each other from the start",
)
