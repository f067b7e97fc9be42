"""Decisions of one sign of advantage that give no gradient."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage


def _dead(stage: Stage, sign: str, kind: str, opposite_sign: str) -> Seen | None:
    share, opposite_share = (
        stage.last(f"zero_gradient_fraction/{sign}"),
        stage.last(f"zero_gradient_fraction/{opposite_sign}"),
    )
    if share is None or share.mean <= 0.5:
        return None
    sentence = f"{share.mean:.0%} of the decisions of {kind} members gave no gradient in the last {WINDOW} steps"
    beside = (
        f" ({opposite_share.mean:.0%} of the {'good' if sign == 'negative' else 'bad'} ones)" if opposite_share else ""
    )
    return Seen(f"{sentence}{beside}.", [share, *([opposite_share] if opposite_share else [])])


def _negatives(stage: Stage) -> Seen | None:
    return _dead(stage, "negative", "bad", "positive")


def _positives(stage: Stage) -> Seen | None:
    return _dead(stage, "positive", "good", "negative")


_ADVICE = (
    "Lower optimiser.learning_rate or train.updates_per_batch, widen the trust region on that side, or choose"
    " a region that keeps a gradient (method cispo, sapo)."
)
DEAD_NEGATIVES = Rule(
    "dead_negatives",
    "warning",
    "Why does the policy not unlearn its mistakes?",
    ("zero_gradient_fraction/negative",),
    f"more than half of the decisions with a negative advantage have no gradient over {WINDOW} steps",
    "The policy learns from good members only, since most decisions of bad members have no gradient. A weight"
    " that multiplies the ratio before the clip does this from the first update on.",
    _ADVICE,
    _negatives,
    phrase="bad answers give no gradient",
    follows=("clip_mostly_acts",),
    steps="smaller",
)
DEAD_POSITIVES = Rule(
    "dead_positives",
    "warning",
    "Why does the policy not learn from its successes?",
    ("zero_gradient_fraction/positive",),
    f"more than half of the decisions with a positive advantage have no gradient over {WINDOW} steps",
    "Good members reach the upper bound early in their batch, so its other updates only make bad members less"
    " probable.",
    _ADVICE,
    _positives,
    phrase="good answers give no gradient",
    follows=("clip_mostly_acts",),
    steps="smaller",
)
