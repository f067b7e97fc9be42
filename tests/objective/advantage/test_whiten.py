"""Whitening over the whole batch, with or without the group's mean first."""

from __future__ import annotations

import math

import pytest
import torch
from tests.laws import SimulatedProcesses
from tests.objective.advantage.groups import advantages, grouped

from groupwise.objective.advantage import Whiten
from groupwise.objective.batch import Grouped, Running


def test_without_a_group() -> None:
    # 0, 2, 4, 4: mean 2.5, squares 11 over 3; a flat group keeps what the others make of it.
    std = math.sqrt(11 / 3)
    assert advantages(Whiten(), [0.0, 2.0], [4.0, 4.0]) == pytest.approx([-2.5 / std, -0.5 / std, 1.5 / std, 1.5 / std])


def test_after_the_groups_mean() -> None:
    # -1, 1, 0, 0: squares 2 over 3; the flat group exactly 0.
    values = advantages(Whiten(baseline="group"), [0.0, 2.0], [4.0, 4.0])
    assert values == pytest.approx([-math.sqrt(1.5), math.sqrt(1.5), 0.0, 0.0])
    assert values[2:] == [0.0, 0.0]


def test_a_flat_batch_is_zero_and_a_missing_reward_does_not_count() -> None:
    assert advantages(Whiten(), [0.5, 0.5], [0.5]) == [0.0, 0.0, 0.0]
    assert advantages(Whiten(), [0.0, None, 2.0]) == pytest.approx([-1 / math.sqrt(2), 0.0, 1 / math.sqrt(2)])


@pytest.mark.parametrize("reward", [0.1, 1e6 + 0.1, 1e12 + 0.1, -3.3e9, 1 / 3])
@pytest.mark.parametrize("size", [3, 8, 24, 96, 1000])
def test_a_flat_batch_is_exactly_zero_though_its_mean_rounds(reward: float, size: int) -> None:
    """24 rewards of .1 gave 1.4e-11."""
    assert set(advantages(Whiten(), [reward] * size)) == {0.0}
    assert set(advantages(Whiten(), [reward, None] * size)) == {0.0}
    halves = [torch.full((count, 1), reward, dtype=torch.float64) for count in (size // 3, size - size // 3)]
    together = SimulatedProcesses(2)

    def part(rank: int) -> torch.Tensor:
        mine = halves[rank]
        index, length = torch.arange(len(mine)), torch.ones(len(mine), 1, dtype=torch.float64)
        rewards = Grouped(
            mine, torch.ones_like(mine, dtype=torch.bool), index, len(mine), length, reduce=together.reduce(rank)
        )
        return Whiten()(rewards, Running())[0]

    assert not torch.cat(together.run(part)).any()


def test_a_missing_reward_and_a_flat_group_are_exactly_zero_after_the_groups_mean() -> None:
    # 0 and 2 about 1, and a third member without a reward; the flat group's mean rounds.
    values = advantages(Whiten(baseline="group"), [0.0, None, 2.0], [0.1, 0.1, 0.1])
    assert values[1] == 0.0
    assert values[3:] == [0.0, 0.0, 0.0]
    # -1, 1, 0, 0, 0: squares 2 over 4.
    assert values[:3] == pytest.approx([-math.sqrt(2), 0.0, math.sqrt(2)])


def test_floor_and_bound() -> None:
    assert advantages(Whiten(min_std=10.0), [0.0, 2.0]) == pytest.approx([-0.1, 0.1])
    assert advantages(Whiten(clip=0.5), [0.0, 2.0]) == [-0.5, 0.5]


def test_statistics_are_over_all_processes() -> None:
    # Two processes with the rewards 0, 2: squares 4 over 3.
    actual, _ = Whiten()(grouped([0.0, 2.0], reduce=lambda total: 2 * total), Running())
    assert actual[:, 0].tolist() == pytest.approx([-math.sqrt(0.75), math.sqrt(0.75)])


def test_says_whether_it_compares_inside_groups() -> None:
    assert Whiten(baseline="group").group_baseline
    assert not Whiten().group_baseline
