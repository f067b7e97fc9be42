"""The group z-score."""

from __future__ import annotations

import math

import pytest
from tests.objective.advantage.groups import advantages

from groupwise.objective.advantage import ZScore

ROOT = math.sqrt(2 / 3)


@pytest.mark.parametrize(("ddof", "expected"), [(1, 1.0), (0, 1 / ROOT)])
def test_three_rewards(ddof: int, expected: float) -> None:
    # 0, 1, 2: mean 1, unbiased deviation 1, population's sqrt(2/3).
    assert advantages(ZScore(ddof=ddof), [0.0, 1.0, 2.0]) == pytest.approx([-expected, 0.0, expected], abs=1e-12)


@pytest.mark.parametrize("level", [0.0, 0.1, 1e6 + 0.1, -3.3])
def test_a_flat_group_is_exactly_zero(level: float) -> None:
    assert advantages(ZScore(), [level] * 3, [0.0, 2.0])[:3] == [0.0, 0.0, 0.0]


def test_missing_rewards_are_left_out() -> None:
    # Present 1, 3: mean 2, unbiased deviation sqrt 2; alone in a group there is no comparison.
    expected = [-1 / math.sqrt(2), 0.0, 1 / math.sqrt(2), 0.0, 0.0]
    assert advantages(ZScore(), [1.0, None, 3.0], [5.0, None]) == pytest.approx(expected)


def test_floor_and_bound() -> None:
    assert advantages(ZScore(min_std=2.0), [0.0, 1.0, 2.0]) == pytest.approx([-0.5, 0.0, 0.5])
    assert advantages(ZScore(clip=0.8), [0.0, 1.0, 2.0]) == pytest.approx([-0.8, 0.0, 0.8])
