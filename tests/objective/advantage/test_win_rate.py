"""The share of its group that a member beats."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.objective.advantage.groups import advantages, grouped

from groupwise.objective.advantage import WinRate
from groupwise.objective.batch import Running


def test_ties_are_half_a_win() -> None:
    # Win rates 1, 1/4, 1/4 as in the docstring.
    root = math.sqrt(3)
    assert advantages(WinRate(), [5.0, 1.0, 1.0]) == pytest.approx([2 / root, -1 / root, -1 / root])


def test_only_the_order_counts() -> None:
    assert advantages(WinRate(), [0.0, 1.0, 1000.0], [0.1, 0.2, 0.3]) == pytest.approx([-1.0, 0.0, 1.0] * 2)


def test_a_margin_makes_small_differences_draws() -> None:
    # 0 and 0.1 draw, both lose to 1: win rates 1/4, 1/4, 1.
    root = math.sqrt(3)
    assert advantages(WinRate(margin=0.1), [0.0, 0.1, 1.0]) == pytest.approx([-1 / root, -1 / root, 2 / root])
    assert advantages(WinRate(margin=2.0), [0.0, 0.1, 1.0]) == [0.0, 0.0, 0.0]


def test_flat_groups_and_lone_members_are_exactly_zero() -> None:
    assert advantages(WinRate(), [0.1, 0.1], [3.0], [None, 1.0]) == [0.0] * 5


def test_rewards_are_compared_one_by_one_and_a_missing_one_draws() -> None:
    plain, partial = grouped([0.0, 1.0, 2.0]), grouped([100.0, None, 0.0])
    combined = replace(plain, parts={"a": plain, "b": partial}, weights={"a": 1.0, "b": 3.0})
    # a: 0, 1/2, 1; b: 1, (missing) 1/2, 0: sums 3, 2, 1.
    actual, _ = WinRate()(combined, Running())
    assert actual[:, 0].tolist() == pytest.approx([1.0, 0.0, -1.0])


def test_maps_are_compared_place_by_place() -> None:
    rewards = grouped([0.0, 1.0])
    wide = replace(
        rewards,
        value=torch.tensor([[0.0, 5.0], [1.0, 4.0]], dtype=torch.float64),
        present=torch.ones(2, 2, dtype=torch.bool),
        parts={},
        weights={},
    )
    actual, _ = WinRate(ddof=0)(wide, Running())
    assert actual.tolist() == [[-1.0, 1.0], [1.0, -1.0]]
