"""Prompts that teach nothing, however often they are drawn."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen
from groupwise.diagnosis.stage import Stage

_LEAST = 20
_SHARE = 0.5


def _look(stage: Stage) -> Seen | None:
    share, count = stage.last("prompts/one_value", 1), stage.last("prompts/revisited", 1)
    if share is None or count is None or count.mean < _LEAST or share.mean < _SHARE:
        return None
    return Seen(
        f"{share.mean:.0%} of the {count.mean:.0f} prompts that were drawn three times or more always earned the same"
        " value, whatever was answered.",
        [share, count],
    )


PROMPTS_OF_ONE_VALUE = Rule(
    "prompts_of_one_value",
    "note",
    "Do my prompts teach anything?",
    ("prompts/one_value", "prompts/revisited"),
    f"of the prompts that were drawn three times or more (at least {_LEAST} prompts), at least {_SHARE:.0%} gave"
    " all their members the same value each time",
    "These prompts are too easy or too hard for this policy, or their answers in the data are wrong. They cost"
    " time and teach nothing.",
    "Leave them out, or let admission.kind = resample (method dapo) or train.adaptive_sampling pass them over. In"
    " rollouts/, look at those that earn nothing.",
    _look,
    phrase="many prompts only ever earn one value",
)
