"""A filter that lets hardly any group train."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_ADMITTED = 0.1
_FLAT = 0.5


def _look(stage: Stage) -> Seen | None:
    admitted, flat = stage.last("groups/admitted"), stage.last("frac_reward_zero_std")
    if admitted is None or flat is None or admitted.mean > _ADMITTED or flat.mean > _FLAT:
        return None
    return Seen(
        f"The admission let {admitted.mean:.0%} of the groups of the last {WINDOW} steps train, although only"
        f" {flat.mean:.0%} were flat.",
        [admitted, flat],
    )


ADMISSION_REJECTS = Rule(
    "admission_rejects",
    "fault",
    "Why are nearly all my groups thrown away?",
    ("groups/admitted", "frac_reward_zero_std"),
    f"over {WINDOW} steps at most {_ADMITTED:.0%} of the groups are admitted, while at most {_FLAT:.0%} are flat",
    "The admission throws away groups that could teach something: its threshold does not fit the rewards.",
    "Set admission.kind = all, or informative, which leaves out flat groups alone; or fit the thresholds of"
    " admission to the range of the rewards.",
    _look,
    phrase="the admission throws nearly all groups away",
)
