"""Optimiser steps that are not made."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage


def _none(stage: Stage) -> Seen | None:
    taken, broken, flat = (stage.last(name) for name in ("updates/taken", "updates/not_finite", "frac_reward_zero_std"))
    if taken is None or sum(taken.values) > 0:
        return None
    because = (
        "every gradient was NaN or infinite"
        if broken and broken.mean > 0
        else "every group was flat"
        if flat and flat.mean > 0.95
        else "every gradient was zero"
    )
    return Seen(
        f"None of the last {WINDOW} steps updated the policy: {because}.",
        [taken, *(series for series in (broken, flat) if series)],
    )


def _not_finite(stage: Stage) -> Seen | None:
    broken, taken, skipped = (
        stage.last(name, 5) for name in ("updates/not_finite", "updates/taken", "updates/skipped")
    )
    if broken is None or taken is None or skipped is None or sum(broken.values) == 0:
        return None
    share = sum(broken.values) / sum(map(sum, (broken.values, taken.values, skipped.values)))
    if share < 0.1:
        return None
    return Seen(
        f"{share:.0%} of the updates of the last 5 steps had a gradient that was NaN or infinite, and were left out.",
        [broken, taken],
    )


NO_UPDATE = Rule(
    "no_update",
    "fault",
    "Why does the model not change at all?",
    ("updates/taken", "updates/not_finite", "frac_reward_zero_std"),
    f"none of {WINDOW} steps made an update",
    "The policy has not changed at all: there was nothing to learn from, or every gradient was unusable.",
    "If groups are flat, see all_flat. If gradients are not finite, see not_finite. Otherwise look at"
    " policy_weight, train.max_grad_norm and the schedules.",
    _none,
    phrase="nothing is updated",
    follows=(
        "all_flat",
        "not_finite",
        "reward_missing",
        "reward_constant",
        "reward_ignores_answer",
        "samples_alike",
        "admission_rejects",
    ),
)
NOT_FINITE = Rule(
    "not_finite",
    "fault",
    "Why are there NaNs?",
    ("updates/not_finite", "updates/taken", "updates/skipped"),
    "over 5 steps at least a tenth of the updates had a gradient that was NaN or infinite",
    "Weights or activations have overflowed. Such updates are left out: the weights stay as they were, but"
    " the policy learns nothing.",
    'Lower optimiser.learning_rate or train.max_grad_norm, or set train.autocast = "none". Then continue with'
    " `groupwise resume` from a checkpoint before the first such update.",
    _not_finite,
    phrase="gradients are not finite",
    follows=("learning_rate_too_high", "weight_decay_too_high"),
    steps="smaller",
)
