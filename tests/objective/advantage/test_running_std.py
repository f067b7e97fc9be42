"""A running deviation as scale."""

from __future__ import annotations

import math

import pytest
from tests.objective.advantage.groups import grouped

from groupwise.objective.advantage import RunningStd
from groupwise.objective.batch import Running


def test_first_batch_is_scaled_by_its_own_deviation() -> None:
    # 0, 2: unbiased deviation sqrt 2.
    actual, running = RunningStd(decay=0.9)(grouped([0.0, 2.0]), Running())
    assert actual[:, 0].tolist() == pytest.approx([-1 / math.sqrt(2), 1 / math.sqrt(2)])
    assert (running.mean, running.std) == pytest.approx((1.0, math.sqrt(2)))


def test_average_is_bias_corrected() -> None:
    # Deviations sqrt 2, then 3 sqrt 2 (0 and 6), decay 0.5: (0.25 sqrt 2 + 0.5 * 3 sqrt 2) / 0.75 = 7/3 sqrt 2.
    _, running = RunningStd(decay=0.5)(grouped([0.0, 2.0]), Running())
    actual, running = RunningStd(decay=0.5)(grouped([0.0, 6.0]), running)
    assert running.std == pytest.approx(7 / 3 * math.sqrt(2))
    assert actual[:, 0].tolist() == pytest.approx([-9 / 7 / math.sqrt(2), 9 / 7 / math.sqrt(2)])


def test_flat_is_zero_with_the_group_baseline_and_difficulty_with_the_running_one() -> None:
    rewards = grouped([0.0, 2.0], [2.0, 2.0])
    group, _ = RunningStd()(rewards, Running())
    assert group[2:, 0].tolist() == [0.0, 0.0]
    # Mean 1.5, unbiased deviation 1: every reward less 1.5.
    running, _ = RunningStd(baseline="running")(rewards, Running())
    assert running[:, 0].tolist() == pytest.approx([-1.5, 0.5, 0.5, 0.5])


def test_the_spread_inside_groups_gives_advantages_of_deviation_one() -> None:
    # Groups at 0 and at 100, each with 0 and 2 on top: centred -1, 1, -1, 1, unbiased deviation 2 / sqrt 3.
    rewards = grouped([0.0, 2.0], [100.0, 102.0])
    centred_values, running = RunningStd(of="advantage")(rewards, Running())
    assert centred_values[:, 0].tolist() == pytest.approx([-math.sqrt(3) / 2, math.sqrt(3) / 2] * 2)
    assert (running.mean, running.centred_std) == pytest.approx((51.0, 2 / math.sqrt(3)))
    # Whatever scales the advantages, the rewards' own deviation is followed beside it: sqrt((51 squared * 2 + 49
    # squared * 2 ) / 3).
    assert running.std == pytest.approx(math.sqrt((51**2 * 2 + 49**2 * 2) / 3))
    # The rewards' own deviation is that of the two groups: the comparison inside them all but vanishes.
    overall, _ = RunningStd()(rewards, Running())
    assert overall.abs().max() < 0.02


def test_a_batch_without_any_reward_is_not_remembered() -> None:
    earlier = Running().follow(mean=1.0, std=2.0, centred_std=0.5, decay=0.9)
    values, running = RunningStd(decay=0.9)(grouped([None, None]), earlier)
    assert running == earlier
    assert values[:, 0].tolist() == [0.0, 0.0]


def test_two_baselines_are_refused() -> None:
    with pytest.raises(ValueError, match='write baseline = "group"'):
        RunningStd(of="advantage", baseline="running")


def test_the_running_mean_is_that_of_all_batches_and_a_single_reward_counts() -> None:
    # Means 2 and 6, weights 1/4 and 1/2 of 3/4: 14/3; both deviations are sqrt(2).
    kind = RunningStd(decay=0.5, baseline="running")
    _, running = kind(grouped([1.0, 3.0]), Running())
    advantage, running = kind(grouped([5.0, 7.0]), running)
    assert advantage[:, 0].tolist() == pytest.approx([1 / 3 / math.sqrt(2), 7 / 3 / math.sqrt(2)])
    # One reward has a mean and no deviation: (1/8) 2 + (1/4) 6 + (1/2) 9 over 7/8, and of sqrt(2) three sevenths.
    _, running = kind(grouped([9.0]), running)
    assert (running.mean, running.std) == pytest.approx((50 / 7, math.sqrt(2) * 3 / 7))
