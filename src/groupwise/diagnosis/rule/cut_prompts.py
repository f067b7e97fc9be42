"""Prompts of which the policy reads the end alone."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen
from groupwise.diagnosis.stage import Stage

_SHARE = 0.2


def _look(stage: Stage) -> Seen | None:
    cut = stage.last("settings/truncated_prompts", 1)
    if cut is None or cut.mean < _SHARE:
        return None
    return Seen(
        f"{cut.mean:.0%} of the training prompts are longer than there is room, and were cut on the left.", [cut]
    )


PROMPTS_TRUNCATED = Rule(
    "prompts_truncated",
    "warning",
    "Does the policy see the whole question?",
    ("settings/truncated_prompts",),
    f"{_SHARE:.0%} of the training prompts or more are cut (`domain.overlong = 'truncate'`)",
    "Of a prompt that is cut the policy reads the end alone; what stood before it, the instructions first of all, is"
    " not there to be answered.",
    "Raise domain.max_prompt_tokens, or lower domain.sampling.max_new_tokens where the model's context is what is too"
    " short; domain.overlong = 'drop' leaves such prompts out.",
    _look,
    phrase="prompts are cut",
)
