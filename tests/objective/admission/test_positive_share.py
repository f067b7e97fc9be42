"""Groups in which enough members succeed."""

from __future__ import annotations

from tests.objective.advantage.groups import grouped

from groupwise.objective.advantage import PositiveShare


def test_share_of_the_present_rewards_above_the_threshold() -> None:
    groups = grouped([1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, None], [1.0, 1.0])
    # 1/4, 1/5, 1/4 of the present, and a flat group.
    assert PositiveShare(min_positive_ratio=0.25)(groups).tolist() == [True, False, True, False]


def test_threshold_is_exclusive() -> None:
    assert PositiveShare(threshold=1.0, min_positive_ratio=0.5)(grouped([1.0, 2.0], [1.0, 0.0])).tolist() == [
        True,
        False,
    ]


def test_a_ratio_that_rounds_up_is_met() -> None:
    # 0.55 * 20 = 11.000000000000002 in floating point.
    assert PositiveShare(min_positive_ratio=0.55)(grouped([1.0] * 11 + [0.0] * 9)).tolist() == [True]
