"""Every group trains."""

from __future__ import annotations

from dataclasses import replace

import torch
from tests.objective.small import grouped

from groupwise.objective.advantage import Everything, Informative, PositiveShare, Resample


def test_all_groups_that_differ_are_flat_have_one_reward_or_none() -> None:
    assert Everything()(grouped([0.0, 1.0, None], [0.1, 0.1], [3.0, None], [None, None])).tolist() == [
        True,
        True,
        True,
        True,
    ]


# Groups whose rewards differ.


def test_informative_groups_that_differ_are_flat_have_one_reward_or_none() -> None:
    assert Informative()(grouped([0.0, 1.0, None], [0.1, 0.1], [3.0, None], [None, None])).tolist() == [
        True,
        False,
        False,
        False,
    ]


def test_informative_a_reward_map_that_differs_at_one_place_is_a_comparison() -> None:
    maps = grouped([1.0, 1.0], [1.0, 1.0])
    value = torch.tensor([[1.0, 0.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]], dtype=torch.float64)
    assert Informative()(replace(maps, value=value, present=torch.ones_like(value, dtype=torch.bool))).tolist() == [
        True,
        False,
    ]


# Groups in which enough members succeed.


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


# Groups whose rewards differ.


def test_only_this_kind_asks_for_more() -> None:
    assert Resample.resamples
