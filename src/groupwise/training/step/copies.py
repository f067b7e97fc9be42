"""Whether equal members of a group earn the same: what part of the differences inside groups is noise of the reward."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from groupwise.reward.content import Content
from groupwise.statistics import Quotient

_ROUNDING = 1e-5
"""Differences of rewards below this share of their size: rounding in a reward that is computed in batches."""


def copies_noise(
    groups: Sequence[int], contents: Sequence[Content], rewards: Sequence[float | None]
) -> Quotient | None:
    """Compares equal members of a group with all its members: the mean squared difference of rewards over pairs that
    are equal, divided by that over all pairs.

    Groups count that have equal members and whose rewards differ. A reward that is a function of prompt and answer
    gives 0. One that is drawn, or that belongs to other members, gives about 1.

    Args:
        groups: of each member.
        contents: of each member.
        rewards: of each member; members without one are left out.

    Returns:
        the statistic; `None` where no group has two equal members and rewards that differ.

    Example:
        >>> yes, no = Content(1), Content(2)
        >>> copies_noise([0, 0, 0, 0], [yes, yes, no, no], [1.0, 1.0, 0.0, 0.0]).finish("noise")
        {'noise': 0.0}
        >>> copies_noise([0, 0, 0, 0], [yes, yes, no, no], [1.0, 0.0, 1.0, 0.0]).finish("noise")
        {'noise': 1.5}
    """
    members: defaultdict[int, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for group, content, reward in zip(groups, contents, rewards, strict=True):
        if reward is not None:
            members[group][content.digest].append(reward)
    pairs, equal_pairs = [], []
    for by_content in members.values():
        everyone = [reward for copies in by_content.values() for reward in copies]
        spread = max(everyone) - min(everyone)
        if len(by_content) == len(everyone) or not spread > _ROUNDING * max(map(abs, everyone)):
            continue
        pairs.append(_differences(everyone))
        equal_pairs += map(_differences, by_content.values())
    if not pairs:
        return None
    (differences, num_pairs), (equal, num_equal) = map(_sums, (pairs, equal_pairs))
    return Quotient.of(equal, num_equal, differences, num_pairs)


def _differences(rewards: Sequence[float]) -> tuple[float, int]:
    """Returns the sum of squared differences over all pairs, and how many pairs there are."""
    count = len(rewards)
    # Less the first, so that equal numbers give exactly 0.
    moved = [reward - rewards[0] for reward in rewards]
    return count * math.fsum([value * value for value in moved]) - math.fsum(moved) ** 2, count * (count - 1) // 2


def _sums(pairs: Sequence[tuple[float, int]]) -> tuple[float, int]:
    return math.fsum([difference for difference, _ in pairs]), sum(count for _, count in pairs)
