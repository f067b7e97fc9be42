"""The length-weighted baseline of a group."""

from __future__ import annotations

import pytest
from tests.objective.advantage.groups import grouped

from groupwise.objective.advantage import LengthWeighted
from groupwise.objective.batch import Running


def advantages(*groups: list[float | None], lengths: list[float], clip: float | None = None) -> list[float]:
    return LengthWeighted(clip=clip)(grouped(*groups, lengths=lengths), Running())[0][:, 0].tolist()


def test_longer_members_weigh_more() -> None:
    # (1 * 4 + 3 * 0) / 4 = 1; the second group's (2 * 1 + 2 * 3) / 4 = 2.
    assert advantages([4.0, 0.0], [1.0, 3.0], lengths=[1.0, 3.0, 2.0, 2.0]) == [3.0, -1.0, -1.0, 1.0]


def test_equal_lengths_give_the_mean() -> None:
    assert advantages([1.0, 2.0, 6.0], lengths=[7.0, 7.0, 7.0]) == pytest.approx([-2.0, -1.0, 3.0])


def test_members_without_a_decision_or_a_reward_do_not_enter() -> None:
    # Only 4 of length 2 and 1 of length 1: (8 + 1) / 3 = 3.
    assert advantages([4.0, None, 1.0, 100.0], lengths=[2.0, 50.0, 1.0, 0.0]) == [1.0, 0.0, -2.0, 97.0]


def test_flat_groups_empty_groups_and_the_bound() -> None:
    assert advantages([0.1, 0.1, 0.1], lengths=[1.0, 2.0, 4.0]) == [0.0, 0.0, 0.0]
    assert advantages([1.0, 2.0], lengths=[0.0, 0.0]) == [1.0, 2.0]
    assert advantages([9.0, 0.0], lengths=[1.0, 1.0], clip=2.0) == [2.0, -2.0]
