"""Prompts of which the policy reads the end alone."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen
from groupwise.diagnosis.stage import Stage

_SHARE = 0.2


def _look(stage: Stage) -> Seen | None:
    cut = stage.last("settings/truncated_prompts", 1)
    if cut is None or cut.mean < _SHARE:
        return None
    return Seen(f"{cut.mean:.0%} of the training prompts are too long, and were cut on the left.", [cut])


PROMPTS_TRUNCATED = Rule(
    "prompts_truncated",
    "warning",
    "Does the policy see the whole question?",
    ("settings/truncated_prompts",),
    f"at least {_SHARE:.0%} of the training prompts are cut (`domain.overlong = 'truncate'`)",
    "The policy reads only the end of a prompt that is cut. What stood before is lost, usually the instructions.",
    "Raise domain.max_prompt_tokens. If the model's context is too short, lower domain.sampling.max_new_tokens."
    " domain.overlong = 'drop' leaves such prompts out.",
    _look,
    phrase="prompts are cut",
)
