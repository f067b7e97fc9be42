"""A policy that became deterministic before it became good."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.series import Series
from groupwise.diagnosis.stage import Stage


def entropy(stage: Stage, count: int) -> tuple[Series, Series] | None:
    """Returns the first and newest entropy, exact where the loss reads it, otherwise estimated by the surprisal; `None`
    of a density, whose entropy has no zero.

    Args:
        stage: the rows.
        count: steps at either end.
    """
    for metric in ("entropy", "surprisal"):
        ends = stage.ends(metric, count)
        if ends is not None:
            return ends if min(min(ends[0].values), min(ends[1].values)) >= 0 and ends[0].mean > 0 else None
    return None


def unused(stage: Stage, count: int, share: float = 0.5) -> tuple[Series, Series] | None:
    """Returns the best of a group at the start and the reward now, where less than a share of the way from the start's
    mean to that best was gone.

    Args:
        stage: the rows.
        count: steps at either end.
        share: of the way.
    """
    best, reward = stage.first("groups/best", count), stage.ends("reward", count)
    if best is None or reward is None:
        return None
    start, last = reward
    return (
        (best, last) if best.mean > start.mean and last.mean - start.mean < share * (best.mean - start.mean) else None
    )


_SHARE = 0.25
"""The best of a group is luck in part, which no policy repeats: in selection, where it is most of it, sound runs come a
third to two thirds of the way.
"""


def _look(stage: Stage) -> Seen | None:
    for count in (10, 20):
        ends, missed = entropy(stage, count), unused(stage, count, _SHARE)
        if ends is None or missed is None or ends[1].mean > 0.1 * ends[0].mean:
            continue
        (start, last), (best, reward) = ends, missed
        sentence = (
            f"Entropy fell from {number(start.mean)} to {number(last.mean)} nats a decision. The reward is"
            f" {number(reward.mean)}; at the start the best member of a group earned {number(best.mean)}."
        )
        return Seen(sentence, [start, last, best, reward])
    return None


ENTROPY_COLLAPSE = Rule(
    "entropy_collapse",
    "warning",
    "Why did learning stop half way? Why are all members of a group alike?",
    ("entropy", "surprisal", "groups/best", "reward"),
    "entropy (or surprisal) has fallen to a tenth of its start, and the reward has risen by less than a quarter"
    " of the distance from its start to what the best member of a group earned then",
    "The members of a group are nearly copies of each other. The policy tries nothing new, and groups become flat"
    " whether their answer is right or wrong.",
    "Lower optimiser.learning_rate, raise trust.high (as method dapo does), set entropy = 0.001 or more or"
    " divergence.beta above 0, or take a larger train.group_size.",
    _look,
    phrase="the policy has collapsed",
    follows=(
        *("learning_rate_too_high", "judge_falls", "judge_disagrees", "reward_dominates", "weight_decay_too_high"),
        *("decisions_left_out", "ratio_always_one"),
    ),
    steps="smaller",
)
