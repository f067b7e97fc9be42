"""Weight decay that takes the weights away."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number, rewards_rise
from groupwise.diagnosis.rule.weights import CHANGE
from groupwise.diagnosis.stage import Stage

_FEW = 5
_A_STEP = 1e-3
_IN_ALL = 0.3


def _look(stage: Stage) -> Seen | None:
    decay, rate = stage.setting("optimiser.weight_decay"), stage.last("learning_rate", _FEW)
    if not isinstance(decay, int | float) or rate is None or rewards_rise(stage, _FEW):
        return None
    share = decay * rate.mean
    if share < _A_STEP or share * stage.count(CHANGE) < _IN_ALL:
        return None
    return Seen(
        f"optimiser.weight_decay = {number(decay)} times the learning rate {number(rate.mean)} takes away"
        f" {number(100 * share)} % of every weight in each update.",
        [rate],
    )


WEIGHT_DECAY_TOO_HIGH = Rule(
    "weight_decay_too_high",
    "fault",
    "Does weight decay destroy my model?",
    ("learning_rate", CHANGE, "reward"),
    f"the product of optimiser.weight_decay and the learning rate is at least {_A_STEP:g} an update and at least"
    f" {_IN_ALL:g} over all updates so far, and the reward has not risen",
    "In each update, AdamW's decay multiplies every weight by 1 - learning_rate * weight_decay, whatever the"
    " gradient says. The model forgets what it could do.",
    "Set optimiser.weight_decay to 0, or to at most 0.1.",
    _look,
    phrase="weight decay takes the weights away",
)
