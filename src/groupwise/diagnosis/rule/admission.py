"""A filter that lets hardly any group train."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen
from groupwise.diagnosis.series import WINDOW, Series
from groupwise.diagnosis.stage import Stage

_ADMITTED = 0.1
_FLAT = 0.5
_SIDES = ("zero_gradient_fraction/positive", "zero_gradient_fraction/negative")
"""Measured where decisions of better and of worse members train."""


def _look(stage: Stage) -> Seen | None:
    admitted, flat = stage.last("groups/admitted"), stage.last("frac_reward_zero_std")
    if admitted is None or flat is None or flat.mean > _FLAT:
        return None
    if admitted.mean > _ADMITTED:
        return _flat_alone(stage, admitted, flat)
    return Seen(
        f"The admission let {admitted.mean:.0%} of the groups of the last {WINDOW} steps train, although only"
        f" {flat.mean:.0%} were flat.",
        [admitted, flat],
    )


def _flat_alone(stage: Stage, admitted: Series, flat: Series) -> Seen | None:
    """Returns what shows that all groups that train are flat: no decision of a better or worse member is among them."""
    loss, spread = stage.last("loss_pg"), stage.last("advantages_std")
    if loss is None or spread is None or any(loss.values) or spread.mean == 0:
        return None
    if stage.setting("objective.admission.kind") in (None, "all") or any(map(stage.count, _SIDES)):
        return None
    if any(trained > alike for trained, alike in zip(admitted.values, flat.values, strict=True)):
        return None
    return Seen(
        f"The admission let {admitted.mean:.0%} of the groups of the last {WINDOW} steps train, all of them flat, and"
        f" threw away the {1 - flat.mean:.0%} in which members differ: the policy's loss is exactly 0.",
        [admitted, flat, loss],
        means="Groups that could teach something are thrown away by the admission, and those that teach nothing are"
        " kept: its condition is turned round.",
    )


ADMISSION_REJECTS = Rule(
    "admission_rejects",
    "fault",
    "Why are nearly all my groups thrown away?",
    ("groups/admitted", "frac_reward_zero_std", "loss_pg", "advantages_std", *_SIDES),
    f"over {WINDOW} steps at most {_ADMITTED:.0%} of the groups are admitted, while at most {_FLAT:.0%} are flat."
    " Or, with an admission other than all, no more groups are admitted than are flat in every step, no decision"
    " of a better or worse member has ever trained, and the policy's loss is exactly 0",
    "The admission throws away groups that could teach something: its threshold does not fit the rewards.",
    "Set admission.kind = all, or informative, which leaves out flat groups alone; or fit the thresholds of"
    " admission to the range of the rewards.",
    _look,
    phrase="the admission throws nearly all groups away",
)
