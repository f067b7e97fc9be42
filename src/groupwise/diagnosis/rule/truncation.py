"""Members cut off by the length limit."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.rule.entropy import unused
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_START = 5
"""Steps that show how long answers were when the stage began."""
_CUT = 0.2
_CAUSES = "Either the reward pays for length, or the policy has collapsed and no longer ends its answers"
_HOLD = (
    "Look in rollouts/ at the rewards of long answers. A reward of kind soft_overlong or a lower"
    " optimiser.learning_rate stops the growth; a higher domain.sampling.max_new_tokens would only feed it."
)


def _look(stage: Stage) -> Seen | None:
    cut = stage.last("completions/clipped_ratio")
    if cut is None or cut.mean < 0.9:
        return None
    sentence = f"{cut.mean:.0%} of the members of the last {WINDOW} steps were cut off by the length limit."
    start = stage.first("completions/clipped_ratio", _START)
    if start is None or (start.mean > 0.5 and not _has_grown(stage)):
        return Seen(
            sentence,
            [cut],
            advice="Raise domain.sampling.max_new_tokens, or write stop strings that fit the model's format.",
        )
    return Seen(
        sentence,
        [start, cut],
        means=f"In the first {_START} steps {start.mean:.0%} were cut off{_growth(stage)}. {_CAUSES}.",
        advice=_HOLD,
    )


def _has_grown(stage: Stage) -> bool:
    """Returns whether answers are half as long again as when the stage began; the limit hides what grows beyond it."""
    start, last = stage.first("completions/mean_length", _START), stage.last("completions/mean_length")
    return start is not None and last is not None and last.mean >= 1.5 * start.mean and last.above(start)


def _brief(stage: Stage) -> Seen | None:
    cut = stage.first("completions/clipped_ratio", _START), stage.last("completions/clipped_ratio")
    length = stage.first("completions/mean_length", _START), stage.last("completions/mean_length")
    if cut[0] is None or cut[1] is None or length[0] is None or length[1] is None or stage.num_steps < 2 * WINDOW:
        return None
    fewer = cut[0].mean >= _CUT and cut[1].mean <= 0.25 * cut[0].mean
    if not fewer or not length[0].above(length[1]) or unused(stage, _START, 0.25) is None:
        return None
    return Seen(
        f"In the first {_START} steps {cut[0].mean:.0%} of the members were cut off by the length limit, and now"
        f" {cut[1].mean:.0%} are. Members have shrunk from {number(length[0].mean)} to {number(length[1].mean)}"
        " decisions.",
        [cut[0], cut[1], length[0], length[1]],
    )


def _growth(stage: Stage) -> str:
    start, last = stage.first("completions/mean_length", _START), stage.last("completions/mean_length")
    return (
        ""
        if start is None or last is None
        else f", and answers have grown from {number(start.mean)} to {number(last.mean)} decisions"
    )


ALL_TRUNCATED = Rule(
    "all_truncated",
    "fault",
    "Why are all answers cut off?",
    ("completions/clipped_ratio",),
    f"at least 90 % of the members are cut off over {WINDOW} steps",
    "An answer that is cut off has no end and usually no result: the reward judges a fragment, and the policy"
    " cannot learn to stop.",
    "If answers were cut off from the first step on, raise domain.sampling.max_new_tokens, or write stop"
    " strings that fit the model's format. If answers grew until they met the limit, add a reward of kind"
    " soft_overlong, or lower optimiser.learning_rate.",
    _look,
    phrase="all answers are truncated",
    follows=(
        "reward_follows_length",
        "learning_rate_too_high",
        "length_creep",
        "entropy_collapse",
        "policy_becomes_random",
        "weight_decay_too_high",
        "texts_repeat",
    ),
)
LIMIT_TEACHES_BREVITY = Rule(
    "limit_teaches_brevity",
    "warning",
    "Why do answers get shorter and no better?",
    ("completions/clipped_ratio", "completions/mean_length", "groups/best", "reward"),
    f"after {2 * WINDOW} steps: at least {_CUT:.0%} of the members of the first {_START} steps were cut off, and"
    f" at most a quarter as many of the last {WINDOW}; the mean length has fallen; and the reward has risen by"
    " less than a quarter of the distance from its start to what the best member of a group earned then",
    "Long answers had no room, so only short ones could earn. The policy learns to be brief, perhaps to leave out"
    " the work.",
    "Raise domain.sampling.max_new_tokens until the model that the stage begins with is hardly ever cut off.",
    _brief,
    phrase="the length limit teaches brevity",
    follows=("learning_rate_too_high", "reward_dominates", "judge_disagrees", "weight_decay_too_high"),
)
