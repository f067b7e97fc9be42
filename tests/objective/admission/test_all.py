"""Every group trains."""

from __future__ import annotations

from tests.objective.advantage.groups import grouped

from groupwise.objective.advantage import Everything


def test_groups_that_differ_are_flat_have_one_reward_or_none() -> None:
    assert Everything()(grouped([0.0, 1.0, None], [0.1, 0.1], [3.0, None], [None, None])).tolist() == [
        True,
        True,
        True,
        True,
    ]
