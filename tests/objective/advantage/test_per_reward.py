"""Each reward compared by itself, then summed and whitened."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.objective.advantage.groups import grouped

from groupwise.objective.advantage import PerReward
from groupwise.objective.batch import Running
from groupwise.statistics import sum_over_one_process

ROOT = 1 / math.sqrt(2)


def advantages(
    advantage: PerReward,
    weights: dict[str, float],
    /,
    reduce=sum_over_one_process,
    **rewards: Sequence[Sequence[float | None]],
) -> list[float]:
    """Rewards by name, each one list a group; a member is scorable where any reward is there."""
    rewards_by_name = {name: grouped(*groups, reduce=reduce) for name, groups in rewards.items()}
    first_reward = next(iter(rewards_by_name.values()))
    present = first_reward.present
    for part in rewards_by_name.values():
        present = present | part.present
    combined = replace(first_reward, present=present, parts=rewards_by_name, weights=weights)
    return advantage(combined, Running())[0][:, 0].tolist()


def test_each_reward_counts_by_its_weight_and_not_by_its_size() -> None:
    # z-scores -+ROOT each; weights 1 and 2, opposite signs: -ROOT + 2 ROOT on the first member.
    plain = PerReward(whiten=False)
    assert advantages(plain, {"a": 1.0, "b": 2.0}, a=[[0.0, 1.0]], b=[[1000.0, 0.0]]) == pytest.approx([ROOT, -ROOT])


def test_the_sum_is_whitened_over_the_batch() -> None:
    # Sums -1, 0, 1 (std 1 of three), 0, 0: mean 0, squares 2 over 4.
    values = advantages(PerReward(), {"a": 1.0}, a=[[0.0, 1.0, 2.0], [4.0, 4.0]])
    assert values == pytest.approx([-math.sqrt(2), 0.0, math.sqrt(2), 0.0, 0.0])
    assert values[3:] == [0.0, 0.0]


def test_population_deviation_and_floor() -> None:
    assert advantages(PerReward(whiten=False, ddof=0), {"a": 1.0}, a=[[0.0, 2.0]]) == pytest.approx([-1.0, 1.0])
    assert advantages(PerReward(whiten=False, min_std=10.0), {"a": 1.0}, a=[[0.0, 2.0]]) == pytest.approx([-0.1, 0.1])


def test_a_missing_reward_leaves_its_term_alone_and_weight_zero_never_counts() -> None:
    values = advantages(
        PerReward(whiten=False),
        {"a": 1.0, "b": 1.0, "c": 0.0},
        a=[[0.0, None, 1.0]],
        b=[[0.0, 5.0, 5.0]],
        c=[[7.0, 8.0, 9.0]],
    )
    # b: mean 10/3, deviations -10/3, 5/3, 5/3, std sqrt(25/3).
    b = [-10 / 3 / math.sqrt(25 / 3), 5 / 3 / math.sqrt(25 / 3)]
    assert values == pytest.approx([-ROOT + b[0], b[1], ROOT + b[1]])


def test_flat_in_every_reward_is_exactly_zero_and_flat_in_one_is_not() -> None:
    values = advantages(
        PerReward(),
        {"a": 1.0, "b": 1.0},
        a=[[0.1, 0.1], [1.0, 1.0], [0.0, 3.0]],
        b=[[0.3, 0.3], [0.0, 1.0], [1.0, 1.0]],
    )
    assert values[:2] == [0.0, 0.0]
    assert values[2:] == pytest.approx([-1.1180339887, 1.1180339887] * 2)  # ROOT over sqrt(4 * 0.5 / 5)


def test_statistics_are_over_all_processes() -> None:
    # Two processes alike: four sums -+ROOT, squares 2 over 3.
    values = advantages(PerReward(), {"a": 1.0}, reduce=lambda total: 2 * total, a=[[0.0, 1.0]])
    assert values == pytest.approx([-ROOT / math.sqrt(2 / 3), ROOT / math.sqrt(2 / 3)])


def test_the_bound_acts_last() -> None:
    assert advantages(PerReward(clip=0.5), {"a": 1.0}, a=[[0.0, 1.0]]) == [-0.5, 0.5]


def test_a_reward_of_negative_weight_counts_against() -> None:
    # ROOT for the first's best, and as much again for being the second's worst.
    assert advantages(PerReward(whiten=False), {"a": 1.0, "b": -1.0}, a=[[1.0, 0.0]], b=[[0.0, 1.0]]) == pytest.approx(
        [2 * ROOT, -2 * ROOT]
    )
