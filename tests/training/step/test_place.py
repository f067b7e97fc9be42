"""Rewards and the places at which members were scored."""

from __future__ import annotations

import random

import pytest

from groupwise.statistics import finish
from groupwise.training.step.collect import place_correlations


def correlations(groups: list[int], rewards: list[float | None]) -> dict[str, float]:
    return finish(place_correlations(groups, rewards))


def test_by_hand() -> None:
    # Inside: places -1, 0, 1 with rewards -1, 1, 0 and -1, 0, 1: (1 + 2) / sqrt(4 * 4). Means 2, 4, 3 at -1, 0, 1.
    found = correlations([5, 5, 5, 7, 7, 7, 9, 9, 9], [1, 3, 2, 3, 4, 5, 3, 3, 3])
    assert found == pytest.approx({"groups/place_correlation": 0.75, "batch/place_correlation": 0.5})


def test_a_member_without_a_reward_is_left_out() -> None:
    assert correlations([0, 0, 0, 1, 1], [1, None, 2, 4, None]) == pytest.approx(
        {"groups/place_correlation": 1.0, "batch/place_correlation": 1.0}
    )


def test_equal_rewards_have_no_correlation() -> None:
    assert correlations([0, 0, 1, 1], [0.1] * 4) == {}
    assert correlations([0, 0], [None, None]) == {}


def test_the_prompts_of_a_step_do_not_count_inside_groups() -> None:
    found = correlations([0, 0, 1, 1], [0, 0, 5, 5])
    assert found == pytest.approx({"batch/place_correlation": 1.0})


def test_chance_has_none() -> None:
    chance = random.Random(0)
    groups = [place // 8 for place in range(16_000)]
    found = correlations(groups, [chance.gauss(0, 1) for _ in groups])
    assert found["groups/place_correlation"] == pytest.approx(0, abs=0.04)
    assert found["batch/place_correlation"] == pytest.approx(0, abs=0.1)


def test_sums_of_two_processes_are_those_of_both() -> None:
    left, right = place_correlations([0, 0, 1, 1], [0, 1, 2, 4]), place_correlations([2, 2, 3, 3], [1, 0, 3, 1])
    both = finish({name: left[name] + right[name] for name in left})
    # Inside: products .5 (1 + 2 - 1 - 2) = 0. Means .5, 3 and .5, 2: products .5 (2.5 + 1.5), squares 3.125 + 1.125.
    assert both == pytest.approx({"groups/place_correlation": 0.0, "batch/place_correlation": 2 / (4.25) ** 0.5})
