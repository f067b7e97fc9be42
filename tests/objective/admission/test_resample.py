"""Groups whose rewards differ."""

from __future__ import annotations

from dataclasses import replace

import torch
from tests.objective.advantage.groups import grouped

from groupwise.objective.advantage import Resample


def test_groups_that_differ_are_flat_have_one_reward_or_none() -> None:
    assert Resample()(grouped([0.0, 1.0, None], [0.1, 0.1], [3.0, None], [None, None])).tolist() == [
        True,
        False,
        False,
        False,
    ]


def test_only_this_kind_asks_for_more() -> None:
    assert Resample.resamples


def test_a_reward_map_that_differs_at_one_place_is_a_comparison() -> None:
    maps = grouped([1.0, 1.0], [1.0, 1.0])
    value = torch.tensor([[1.0, 0.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]], dtype=torch.float64)
    assert Resample()(replace(maps, value=value, present=torch.ones_like(value, dtype=torch.bool))).tolist() == [
        True,
        False,
    ]
