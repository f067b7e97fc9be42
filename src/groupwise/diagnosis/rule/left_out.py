"""Decisions that are sampled and not trained on."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.stage import Stage

_FEW = 5
_SHARE = 0.5
_CUT = 0.2
"""Share of members that are cut off, beyond which it is the length limit that makes them short."""
_SAMPLED = "eval/sampled/length"


def _look(stage: Stage) -> Seen | None:
    lengths = stage.first("completions/mean_length", _FEW)
    evaluated = next((seen for seen in stage.evaluated if seen.metric == _SAMPLED), None)
    if lengths is None or evaluated is None or evaluated.steps[0] >= lengths.steps[0]:
        return None
    cut, limit = stage.first("completions/clipped_ratio", _FEW), stage.setting("domain.sampling.max_new_tokens")
    if cut is not None and cut.mean > _CUT and isinstance(limit, int) and lengths.mean >= _SHARE * limit:
        return None
    # Answers of several turns are measured with the words of others between them, which nobody trains on.
    if stage.setting("domain.environment") or lengths.mean + 2 * lengths.error >= _SHARE * evaluated.values[0]:
        return None
    return Seen(
        f"In the first {_FEW} steps a member had {number(lengths.mean)} decisions to train on. In the evaluation"
        f" before, a sampled answer had {number(evaluated.values[0])} tokens.",
        [lengths, evaluated],
    )


DECISIONS_LEFT_OUT = Rule(
    "decisions_left_out",
    "warning",
    "Is the whole answer trained on?",
    ("completions/mean_length", "completions/clipped_ratio", "eval/NAME"),
    f"in the first {_FEW} steps members have less than {_SHARE} of the decisions that sampled answers had in the"
    f" evaluation before, and the run has no environment. The rule is silent if more than {_CUT} of the members"
    f" were cut off at a length limit of at most {1 / _SHARE:g} times their length",
    "A mask leaves out most of what the policy writes. Tokens before or after some mark never become more or less"
    " probable, though the reward judges them.",
    "Train on the whole completion: look at the mask of one member beside its tokens. If evaluated prompts need"
    " longer answers than trained ones, or have another limit (domain.sampling), that alone may be the reason.",
    _look,
    phrase="most of an answer is not trained on",
)
