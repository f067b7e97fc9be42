"""Statistics of a round: what equal members of a group earn, and rewards that follow the places of members."""

from __future__ import annotations

import pytest

from groupwise.reward.completions import Content
from groupwise.statistics import finish
from groupwise.training.step.rollouts import copies_noise, place_correlations

A, B, C = Content(1), Content(2), Content(3)


def noise(groups: list[int], contents: list[Content], rewards: list[float | None]) -> float | None:
    found = copies_noise(groups, contents, rewards)
    return None if found is None else finish({"noise": found})["noise"]


def test_a_function_of_the_answer_has_no_noise() -> None:
    assert noise([0] * 5, [A, A, B, B, C], [0.1, 0.1, 0.3, 0.3, 0.7]) == 0.0


def test_of_pairs_by_hand() -> None:
    # Equal: (0 - 1)^2 and (0 - 0)^2, a half in the mean. All six pairs: four of them differ by 1, less those alike.
    assert noise([0] * 4, [A, A, B, B], [0.0, 1.0, 0.0, 0.0]) == pytest.approx((1 / 2) / (3 / 6))


def test_groups_without_copies_or_whose_members_earn_the_same_do_not_count() -> None:
    counted = noise([0] * 4, [A, A, B, B], [0.0, 1.0, 0.0, 0.0])
    assert (
        noise([0] * 4 + [1, 1] + [2, 2], [A, A, B, B, A, B, C, C], [0.0, 1.0, 0.0, 0.0, 5.0, 9.0, 1.0, 1.0]) == counted
    )
    assert noise([0, 0], [A, A], [1.0, 1.0]) is None
    assert noise([0, 0], [A, A], [1.0, 1.0 + 1e-7]) is None, "rounding is no noise"


def test_a_member_without_a_reward_is_left_out() -> None:
    assert noise([0, 0, 0], [A, A, B], [None, 1.0, 0.0]) is None


def test_sums_of_two_parts_are_those_of_the_whole() -> None:
    left, right = copies_noise([0] * 4, [A, A, B, B], [0.0, 1.0, 0.0, 0.0]), copies_noise([1] * 3, [A, A, B], [0, 2, 0])
    assert left is not None
    assert right is not None
    whole = noise([0] * 4 + [1] * 3, [A, A, B, B, A, A, B], [0.0, 1.0, 0.0, 0.0, 0, 2, 0])
    assert finish({"noise": left + right})["noise"] == whole


def correlations(groups: list[int], rewards: list[float | None]) -> dict[str, float]:
    return finish(place_correlations(groups, rewards))


def test_places_by_hand() -> None:
    # Inside: places -1, 0, 1 with rewards -1, 1, 0 and -1, 0, 1: (1 + 2) / sqrt(4 * 4). Means 2, 4, 3 at -1, 0, 1.
    found = correlations([5, 5, 5, 7, 7, 7, 9, 9, 9], [1, 3, 2, 3, 4, 5, 3, 3, 3])
    assert found == pytest.approx({"groups/place_correlation": 0.75, "batch/place_correlation": 0.5})


def test_equal_rewards_have_no_correlation() -> None:
    assert correlations([0, 0, 1, 1], [0.1] * 4) == {}
    assert correlations([0, 0], [None, None]) == {}


def test_sums_over_places_of_two_processes_are_those_of_both() -> None:
    left, right = place_correlations([0, 0, 1, 1], [0, 1, 2, 4]), place_correlations([2, 2, 3, 3], [1, 0, 3, 1])
    both = finish({name: left[name] + right[name] for name in left})
    # Inside: products .5 (1 + 2 - 1 - 2) = 0. Means .5, 3 and .5, 2: products .5 (2.5 + 1.5), squares 3.125 + 1.125.
    assert both == pytest.approx({"groups/place_correlation": 0.0, "batch/place_correlation": 2 / (4.25) ** 0.5})
