"""The groups of a run: size and rewards of each, and the sample of them that a page shows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from groupwise.runs import Run, is_number

STRATA = ("first", "last", "highest spread", "all wrong", "flat", "evenly over the run")
"""The strata of a page's sample; a group that fits several counts for the first of them."""


@final
@dataclass(frozen=True)
class Group:
    """One group as `rollouts/` recorded it.

    Args:
        step: step of the run that sampled the group.
        key: identifies the group within the file of its step.
        size: number of recorded members.
        low, high: lowest and highest reward of a member; `None` where no member has one.

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
        """True where all rewards are equal, so that there was nothing to compare."""
        return self.low is not None and self.low == self.high

    @property
    def all_wrong(self) -> bool:
        """True where the group is flat at a reward of 0 or below."""
        return self.flat and (self.high or 0.0) <= 0.0

    @property
    def spread(self) -> float:
        """The best reward minus the worst; 0 where no member has one."""
        return 0.0 if self.low is None or self.high is None else self.high - self.low


@final
@dataclass(frozen=True)
class Recorded:
    """The numbers in the recorded rollouts of a run.

    Args:
        groups: all recorded groups, in order of their steps.
        advantages, rewards: step -> values of the recorded members.
        reward_names: names of the rewards, in the order in which they appear.
        remarks: one sentence for every line or file that could not be read.
    """

    groups: list[Group] = field(default_factory=list)
    advantages: dict[int, np.ndarray] = field(default_factory=dict)
    rewards: dict[int, np.ndarray] = field(default_factory=dict)
    reward_names: tuple[str, ...] = ()
    remarks: list[str] = field(default_factory=list)


def scan(run: Run) -> Recorded:
    """Reads all rollouts of a run once, with one file in memory at a time.

    Returns:
        the numbers of every group, without its texts.
    """
    recorded = Recorded()
    reward_names: dict[str, None] = {}
    for step, path in run.rollouts.items():
        rewards: dict[Any, list[Any]] = {}
        advantages: list[float] = []
        for record in run.records(path, recorded.remarks):
            rewards.setdefault(group_key(record), []).append(record.get("reward"))
            if is_number(record.get("advantage")):
                advantages.append(float(record["advantage"]))
            if isinstance(rewards_by_name := record.get("rewards"), dict):
                reward_names.update(dict.fromkeys(map(str, rewards_by_name)))
        for key, values in rewards.items():
            reward_numbers = [float(value) for value in values if is_number(value)]
            recorded.groups.append(
                Group(step, key, len(values), min(reward_numbers, default=None), max(reward_numbers, default=None))
            )
        recorded.advantages[step] = np.array(advantages)
        recorded.rewards[step] = np.array(
            [float(value) for values in rewards.values() for value in values if is_number(value)]
        )
    return Recorded(recorded.groups, recorded.advantages, recorded.rewards, tuple(reward_names), recorded.remarks)


def group_key(record: dict[str, Any]) -> Any:
    """Returns the value that the members of one group share in the file of their step.

    Args:
        record: one member's line of `rollouts/`, as JSON read it.

    Example:
        >>> group_key({"group": 3, "key": "a"}), group_key({"key": "a"}), group_key({"prompt": ["b"]})
        (3, 'a', "['b']")
    """
    for name in ("group", "key", "prompt"):
        if (value := record.get(name)) is not None:
            return value if isinstance(value, str) or is_number(value) else str(value)
    return ""


def choose(groups: Sequence[Group], most_groups: int) -> list[tuple[Group, str]]:
    """Returns a stratified sample of groups.

    The strata are the groups of the first and of the last recorded step, those of the highest spread, all-wrong and
    flat groups over the whole run, and every k-th group. The strata are served in turn, so that any beginning of the
    sample is a sample as well, with every stratum in it.

    Args:
        groups: groups of one run, in order of their steps.
        most_groups: the largest size of the sample.

    Returns:
        groups, each with the stratum that it stands for, the most important first.

    Example:
        >>> groups = [Group(step, 0, 4, 0.0, float(step % 2)) for step in range(1, 9)]
        >>> [(group.step, stratum) for group, stratum in choose(groups, 4)]
        [(1, 'first'), (8, 'last'), (3, 'highest spread'), (6, 'all wrong')]
    """
    if not groups:
        return []
    positions = range(len(groups))
    by_spread = sorted(
        (position for position in positions if groups[position].spread > 0),
        key=lambda position: -groups[position].spread,
    )
    wrong = [position for position in positions if groups[position].all_wrong]
    flat = [position for position in positions if groups[position].flat and not groups[position].all_wrong]
    queues = {
        "first": [position for position in positions if groups[position].step == groups[0].step][
            : most_groups // 8 + 1
        ],
        "last": [position for position in positions if groups[position].step == groups[-1].step][
            : most_groups // 8 + 1
        ],
        "highest spread": by_spread,
        "all wrong": _spread_out(wrong),
        "flat": _spread_out(flat),
        "evenly over the run": _spread_out(list(positions)),
    }
    chosen: dict[int, str] = {}
    waiting = {stratum: iter(queue) for stratum, queue in queues.items()}
    while waiting and len(chosen) < min(most_groups, len(groups)):
        for stratum in list(waiting):
            position = next((position for position in waiting[stratum] if position not in chosen), None)
            if position is None:
                del waiting[stratum]
            elif len(chosen) < most_groups:
                chosen[position] = stratum
    return [(groups[position], stratum) for position, stratum in chosen.items()]


def _spread_out(positions: list[int]) -> list[int]:
    """Returns the same positions in the order of halves, quarters, eighths, ..., so that every beginning of the list
    is spread evenly over the whole.
    """
    num_positions = len(positions)
    if num_positions < 3:
        return positions
    order: dict[int, None] = {}
    for depth in itertools.count():
        num_intervals = 2**depth
        order.update(
            dict.fromkeys(
                position
                for interval in range(num_intervals)
                if (position := (2 * interval + 1) * num_positions // (2 * num_intervals)) < num_positions
            )
        )
        if num_intervals >= num_positions:
            break
    return [
        positions[position]
        for position in [*order, *(position for position in range(num_positions) if position not in order)]
    ]
