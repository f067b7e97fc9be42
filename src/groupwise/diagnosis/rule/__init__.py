"""Every rule. A rule is one entry of a table in a file beside; adding it there is the whole registration."""

from groupwise.diagnosis.rule import compare, data, evaluation, policy, progress, rewards, steps, texts, updates
from groupwise.diagnosis.rule.base import Rule, Seen

RULES: tuple[Rule, ...] = (
    *compare.RULES,
    *updates.RULES,
    *texts.RULES,
    *data.RULES,
    *evaluation.RULES,
    *progress.RULES,
    *rewards.RULES,
    *policy.RULES,
    *steps.RULES,
)

__all__ = ["RULES", "Rule", "Seen"]
