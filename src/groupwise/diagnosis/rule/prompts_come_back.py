"""Prompts that are drawn again before the others have been."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.stage import Stage

_EPOCHS = 2.0
_SHARE = 0.5
_RULES = ("adaptive_sampling", "worst_first")
"""Settings that draw some prompts more often than others on purpose."""


def _look(stage: Stage) -> Seen | None:
    epoch, revisited, drawn = (stage.last(name, 1) for name in ("epoch", "prompts/revisited", "num_prompts_drawn"))
    if epoch is None or revisited is None or drawn is None or any(stage.setting(f"train.{rule}") for rule in _RULES):
        return None
    if epoch.mean > _EPOCHS or revisited.mean < _SHARE * drawn.mean:
        return None
    return Seen(
        f"{revisited.mean:.0f} prompts were drawn three times or more by epoch {number(epoch.mean)}, and an epoch draws"
        " every prompt once.",
        [revisited, epoch, drawn],
    )


PROMPTS_COME_BACK = Rule(
    "prompts_come_back",
    "warning",
    "Is my whole training set used?",
    ("epoch", "prompts/revisited", "num_prompts_drawn"),
    f"by epoch {_EPOCHS:g} at least {_SHARE:g} as many prompts as a step draws were drawn three times or more. The"
    f" rule is silent with {' and '.join(f'train.{rule}' for rule in _RULES)}",
    "An epoch draws every prompt once, so no prompt can come a third time before the third epoch. Something"
    " begins anew: an iterator that is made in every step, or a seed that is set again. The policy is trained on"
    " a few prompts, however many the data set holds, and learns them by heart.",
    "Make the iterator over the prompts once, seed it once, and let it go on between steps. Print the prompts of"
    " two steps side by side. If some prompts should come more often, use train.adaptive_sampling.",
    _look,
    phrase="the same prompts are drawn again and again",
    # Later epochs only hide it.
    ended=lambda stage: False,
)
