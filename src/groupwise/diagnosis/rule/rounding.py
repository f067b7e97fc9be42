"""Steps that are smaller than the distance of two weights."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number, rewards_rise
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

STUCK = "weights/stuck"
_SHARE = 0.5


def _look(stage: Stage) -> Seen | None:
    stuck, rate = stage.last(STUCK), stage.last("learning_rate")
    if stuck is None or rate is None or not _SHARE <= stuck.mean < 1 or min(rate.values) <= 0:
        return None
    return Seen(
        f"At a learning rate of {number(rate.mean)}, {stuck.mean:.0%} of the weights with a gradient were the same"
        f" after an update as before, over the last {WINDOW} steps.",
        [stuck, rate],
        "note" if stage.windows.risen or rewards_rise(stage) else None,
    )


STEPS_ROUND_AWAY = Rule(
    "steps_round_away",
    "warning",
    "Are my steps lost in the precision of the weights?",
    (STUCK, "learning_rate", "reward"),
    f"over {WINDOW} steps, at a learning rate above 0, updates left at least {_SHARE:.0%} of the weights with a"
    " gradient as they were, but not all (a note if the reward has risen)",
    "The steps of these weights were smaller than half the distance to the next number of their dtype, so only"
    " small weights are trained. (bfloat16 has eight bits: steps below 0.2 % of a weight may round away.)",
    'Keep the weights in float32 (domain.model.dtype = "float32") and compute in bfloat16 (train.autocast), or take ten'
    " times optimiser.learning_rate.",
    _look,
    phrase="steps are lost in the precision of the weights",
    follows=("learning_rate_too_low",),
    steps="larger",
)
