"""Texts that say the same again and again."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_METRIC = "completions/repetition"
_FEW = 5
_MOST = 0.4
_GROWTH = 0.25


def _look(stage: Stage) -> Seen | None:
    start, last = stage.first(_METRIC, _FEW), stage.last(_METRIC)
    if start is None or last is None or last.mean < max(_MOST, start.mean + _GROWTH):
        return None
    return Seen(
        f"{last.mean:.0%} of the three-word phrases occurred earlier in the same text; in the first {_FEW} steps"
        f" {start.mean:.0%} did.",
        [start, last],
    )


TEXTS_REPEAT = Rule(
    "texts_repeat",
    "warning",
    "Why does my model say the same again and again?",
    (_METRIC,),
    f"over {WINDOW} steps at least {_MOST:.0%} of a text's three-word phrases occur earlier in the same text, and"
    f" this share is {100 * _GROWTH:g} percentage points above that of the first {_FEW} steps",
    "Texts have become repetitive: the policy has collapsed, or the reward pays for what repetition supplies.",
    "Look at the end of long texts in rollouts/. If repetition earns, mend the reward. Otherwise lower"
    " optimiser.learning_rate or set divergence.beta above 0.",
    _look,
    phrase="texts repeat themselves",
    follows=(
        "prompts_truncated",
        "reward_follows_length",
        "learning_rate_too_high",
        "weight_decay_too_high",
        "judge_disagrees",
        "judge_falls",
        "reward_dominates",
    ),
)
