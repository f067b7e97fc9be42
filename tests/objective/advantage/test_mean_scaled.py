"""The reward relative to its group's mean."""

from __future__ import annotations

import pytest
from tests.objective.advantage.groups import advantages

from groupwise.objective.advantage import MeanScaled


def test_the_rarer_a_success_the_more_it_weighs() -> None:
    assert advantages(MeanScaled(), [1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]) == pytest.approx(
        [3.0, -1.0, -1.0, -1.0, 1 / 3, 1 / 3, 1 / 3, -1.0]
    )


def test_no_success_and_no_failure_are_zero() -> None:
    assert advantages(MeanScaled(), [0.0, 0.0], [0.1, 0.1, 0.1]) == [0.0] * 5


def test_missing_rewards_and_the_bound() -> None:
    assert advantages(MeanScaled(clip=0.75), [3.0, None, 1.0]) == [0.5, 0.0, -0.5]
    assert advantages(MeanScaled(clip=0.25), [3.0, None, 1.0]) == [0.25, 0.0, -0.25]


def test_negative_rewards_are_refused_with_what_to_write() -> None:
    with pytest.raises(
        ValueError,
        match=(
            r"'mean_scaled'.*no negative reward; the lowest is -0.5; shift the reward, or write advantage.kind ="
            r" 'centred'"
        ),
    ):
        advantages(MeanScaled(), [1.0, -0.5])


def test_small_means_scale_as_large_ones() -> None:
    assert advantages(MeanScaled(), [0.03, 0.01, 0.02, 0.0]) == pytest.approx([1.0, -1 / 3, 1 / 3, -1.0])
