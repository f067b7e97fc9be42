"""Groups of a run: what each was like, and which of them a page shows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from groupwise.runs import Run, is_number

STRATA = ("first", "last", "highest spread", "all wrong", "flat", "evenly over the run")
"""What a page shows groups for, in the order in which a group that fits several counts."""


@final
@dataclass(frozen=True)
class Group:
    """One group as `rollouts/` recorded it.

    Args:
        step: of the run.
        key: the group's own in its file.
        size: members.
        low, high: of the reward; `None` where no member has one.

    Example:
        >>> Group(1, 0, 4, 0.0, 0.0).all_wrong, Group(1, 0, 4, 0.0, 1.0).spread
        (True, 1.0)
    """

    step: int
    key: Any
    size: int
    low: float | None
    high: float | None

    @property
    def flat(self) -> bool:
        """Whether all rewards are equal, so that there was nothing to compare."""
        return self.low is not None and self.low == self.high

    @property
    def all_wrong(self) -> bool:
        """Flat at a reward of 0 or below."""
        return self.flat and (self.high or 0.0) <= 0.0

    @property
    def spread(self) -> float:
        """Best less worst reward."""
        return 0.0 if self.low is None or self.high is None else self.high - self.low


@final
@dataclass(frozen=True)
class Recorded:
    """What the rollouts of a run hold.

    Args:
        groups: in order of their steps.
        advantages, rewards: step -> values of the members recorded.
        parts: names of the rewards, in the order in which they appear.
        remarks: what could not be read, in sentences.
    """

    groups: list[Group] = field(default_factory=list)
    advantages: dict[int, np.ndarray] = field(default_factory=dict)
    rewards: dict[int, np.ndarray] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    remarks: list[str] = field(default_factory=list)


def scan(run: Run) -> Recorded:
    """Goes through all rollouts of a run once, one file in memory at a time.

    Args:
        run: of which.

    Returns:
        every group's numbers, without its texts.
    """
    found = Recorded()
    parts: dict[str, None] = {}
    for step, path in run.rollouts.items():
        rewards: dict[Any, list[Any]] = {}
        advantages: list[float] = []
        for record in run.records(path, found.remarks):
            rewards.setdefault(group_key(record), []).append(record.get("reward"))
            if is_number(record.get("advantage")):
                advantages.append(float(record["advantage"]))
            if isinstance(named := record.get("rewards"), dict):
                parts.update(dict.fromkeys(map(str, named)))
        for key, values in rewards.items():
            known = [float(value) for value in values if is_number(value)]
            found.groups.append(Group(step, key, len(values), min(known, default=None), max(known, default=None)))
        found.advantages[step] = np.array(advantages)
        found.rewards[step] = np.array(
            [float(value) for values in rewards.values() for value in values if is_number(value)]
        )
    return Recorded(found.groups, found.advantages, found.rewards, tuple(parts), found.remarks)


def group_key(record: dict[str, Any]) -> Any:
    """What the members of one group share in their file.

    Args:
        record: of a member.

    Example:
        >>> group_key({"group": 3, "key": "a"}), group_key({"key": "a"}), group_key({"prompt": ["b"]})
        (3, 'a', "['b']")
    """
    for name in ("group", "key", "prompt"):
        if (value := record.get(name)) is not None:
            return value if isinstance(value, str) or is_number(value) else str(value)
    return ""


def choose(groups: Sequence[Group], most: int) -> list[tuple[Group, str]]:
    """A stratified sample: groups of the first and of the last recorded step, those of the highest spread, all-wrong
    and flat ones over the whole run, and every k-th of all.

    The strata are served in turn, each in its own order, so that any beginning of the sample is one too, with every
    stratum in it.

    Args:
        groups: in order of their steps.
        most: how many.

    Returns:
        groups with the stratum each was taken for, those that matter most first.

    Example:
        >>> groups = [Group(step, 0, 4, 0.0, float(step % 2)) for step in range(1, 9)]
        >>> [(group.step, stratum) for group, stratum in choose(groups, 4)]
        [(1, 'first'), (8, 'last'), (3, 'highest spread'), (6, 'all wrong')]
    """
    if not groups:
        return []
    places = range(len(groups))
    by_spread = sorted((place for place in places if groups[place].spread > 0), key=lambda place: -groups[place].spread)
    wrong = [place for place in places if groups[place].all_wrong]
    flat = [place for place in places if groups[place].flat and not groups[place].all_wrong]
    queues = {
        "first": [place for place in places if groups[place].step == groups[0].step][: most // 8 + 1],
        "last": [place for place in places if groups[place].step == groups[-1].step][: most // 8 + 1],
        "highest spread": by_spread,
        "all wrong": _spread_out(wrong),
        "flat": _spread_out(flat),
        "evenly over the run": _spread_out(list(places)),
    }
    chosen: dict[int, str] = {}
    waiting = {stratum: iter(queue) for stratum, queue in queues.items()}
    while waiting and len(chosen) < min(most, len(groups)):
        for stratum in list(waiting):
            place = next((place for place in waiting[stratum] if place not in chosen), None)
            if place is None:
                del waiting[stratum]
            elif len(chosen) < most:
                chosen[place] = stratum
    return [(groups[place], stratum) for place, stratum in chosen.items()]


def _spread_out(places: list[int]) -> list[int]:
    """The same places in an order of which every beginning lies evenly over the whole: halves, quarters,
    eighths, ...
    """
    count = len(places)
    if count < 3:
        return places
    order: dict[int, None] = {}
    for depth in itertools.count():
        parts = 2**depth
        order.update(
            dict.fromkeys(place for part in range(parts) if (place := (2 * part + 1) * count // (2 * parts)) < count)
        )
        if parts >= count:
            break
    return [places[place] for place in [*order, *(place for place in range(count) if place not in order)]]
