"""Members cut off by the length limit."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage


def _look(stage: Stage) -> Seen | None:
    cut = stage.last("completions/clipped_ratio")
    if cut is None or cut.mean < 0.9:
        return None
    return Seen(f"{cut.mean:.0%} of the members of the last {WINDOW} steps were cut off by the length limit.", [cut])


ALL_TRUNCATED = Rule(
    "all_truncated",
    "fault",
    "Why do no answers come out?",
    ("completions/clipped_ratio",),
    f"at least 90 % of the members are cut off over {WINDOW} steps",
    "What is cut off has no ending and usually no answer: the reward judges a fragment, and the policy cannot learn to stop.",
    "A higher domain.sampling.max_new_tokens, stop strings that fit the model's format, or a reward.kind soft_overlong.",
    _look,
)
