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
        f"Equal answers to one prompt earned different rewards: over {WINDOW} steps the mean squared difference of two"
        f" equal ones was {noise.mean:.0%} of that of any two members of their group."
    )
    if start.mean < _SHARE:
        means = "It was less at first: noise is what is left now that members differ little."
        return Seen(sentence, [start, noise], "note", means)
    return Seen(sentence, [noise])


REWARD_IS_NOISE = Rule(
    "reward_is_noise",
    "warning",
    "Is my reward chance?",
    ("groups/copies_noise",),
    f"over {WINDOW} steps in which groups held equal members, the squared differences of their rewards were"
    f" {_SHARE} of those of all members or more; a note where they were less in the first such steps",
    "The reward is no function of prompt and answer. It is drawn, it depends on where or when a member was scored, it"
    " belongs to another member, or a few values are far off. Groups compare this noise.",
    "Score the members of one group twice (`groupwise.testing.check_reward` does). Return the"
    " values in the order of the members, keep no state between calls, average what is drawn, and bound it.",
    _look,
    phrase="equal answers earn different rewards",
)
