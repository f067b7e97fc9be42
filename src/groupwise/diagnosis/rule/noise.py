"""A reward that gives equal answers different values."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_SHARE = 0.5


def _look(stage: Stage) -> Seen | None:
    start, noise = stage.first("groups/copies_noise"), stage.last("groups/copies_noise")
    if start is None or noise is None or noise.mean < _SHARE:
        return None
    sentence = (
        f"Equal answers to one prompt earned different rewards. Over {WINDOW} steps the mean squared difference of two"
        f" equal members' rewards was {noise.mean:.0%} of that of any two members of their group."
    )
    if start.mean < _SHARE:
        means = "The share was smaller at first. Members now differ little, so mostly noise is left."
        return Seen(sentence, [start, noise], "note", means)
    return Seen(sentence, [noise])


REWARD_IS_NOISE = Rule(
    "reward_is_noise",
    "warning",
    "Is my reward random?",
    ("groups/copies_noise",),
    f"over {WINDOW} steps in which groups held equal members, the mean squared difference of two equal members'"
    f" rewards was at least {_SHARE} of that of any two members. This is only a note if it was"
    " less in the first such steps",
    "The reward is not a function of prompt and answer. It is random, it depends on where or when a member was"
    " scored, it belongs to another member, or a few of its values are outliers. Groups compare this noise.",
    "Score the members of one group twice (`groupwise.testing.check_reward` does this). Return the values in the"
    " order of the members, keep no state between calls, average random values, and bound them.",
    _look,
    phrase="equal answers earn different rewards",
)
