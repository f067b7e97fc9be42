"""Updates that are counted and change nothing."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.rule.weights import CHANGE
from groupwise.diagnosis.stage import Stage

_FEW = 10
_NOTHING = 1e-12


def _look(stage: Stage) -> Seen | None:
    changes, rate = stage.last(CHANGE, _FEW), stage.last("learning_rate", _FEW)
    if changes is None or rate is None or max(changes.values) > _NOTHING or min(rate.values) <= 0:
        return None
    return Seen(
        f"The optimiser stepped at a learning rate of {number(rate.mean)}, and no weight changed in the last {_FEW}"
        " steps with an update.",
        [changes, rate],
    )


WEIGHTS_UNCHANGED = Rule(
    "weights_unchanged",
    "fault",
    "Why do updates change nothing?",
    (CHANGE, "learning_rate"),
    f"in the last {_FEW} steps with an update no weight changed, at a learning rate above 0",
    "The optimiser updates tensors that are not the model's, or each step is smaller than half a unit in the last"
    " place of the weights' dtype and rounds to nothing.",
    "Build the optimiser from the parameters of the model that samples. Keep the weights in float32"
    ' (domain.model.dtype = "float32"), or raise optimiser.learning_rate.',
    _look,
    phrase="updates change no weight",
)
