"""Rejection sampling: one for what the reward accepts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.laws import SimulatedProcesses
from tests.objective.small import advantages, grouped

from groupwise.objective import Objective
from groupwise.objective.advantage import (
    Accepted,
    BatchStd,
    Centred,
    ConstantBaseline,
    LeaveOneOut,
    LengthWeighted,
    MeanScaled,
    PerPrompt,
    PerReward,
    Rank,
    RunningStd,
    Whiten,
    WinRate,
    ZScore,
)
from groupwise.objective.batch import Grouped, Running
from groupwise.records import Rollouts
from groupwise.statistics import sum_over_one_process


def test_strictly_above_the_threshold() -> None:
    assert advantages(Accepted(threshold=0.5), [0.5, 0.6, None], [1.0, 1.0]) == [0.0, 1.0, 0.0, 1.0, 1.0]


# The group's mean as baseline, the batch's deviation as scale.


def test_scale_is_of_all_rewards() -> None:
    # 0, 2, 4, 4: mean 2.5, squares 6.25 + 0.25 + 2.25 + 2.25 = 11 over 3.
    assert advantages(BatchStd(), [0.0, 2.0], [4.0, 4.0]) == pytest.approx(
        [-1 / math.sqrt(11 / 3), 1 / math.sqrt(11 / 3), 0.0, 0.0]
    )


def test_or_of_all_centred_rewards() -> None:
    # -1, 1, 0, 0: squares 2 over 3.
    assert advantages(BatchStd(of="advantage"), [0.0, 2.0], [4.0, 4.0]) == pytest.approx(
        [-math.sqrt(1.5), math.sqrt(1.5), 0.0, 0.0]
    )


def test_scale_is_over_all_processes() -> None:
    # Two processes with the same rewards 0, 2: squares 4 over 3.
    actual, _ = BatchStd()(grouped([0.0, 2.0], reduce=lambda total: 2 * total), Running())
    assert actual[:, 0].tolist() == pytest.approx([-math.sqrt(0.75), math.sqrt(0.75)])


def test_population_deviation() -> None:
    # 0, 2, 4, 4: squares 11 over 4.
    assert advantages(BatchStd(ddof=0), [0.0, 2.0], [4.0, 4.0])[:2] == pytest.approx(
        [-1 / math.sqrt(11 / 4), 1 / math.sqrt(11 / 4)]
    )


# The reward less its group's mean.


def test_difference_from_the_mean_of_the_present() -> None:
    assert advantages(Centred(), [1.0, 4.0, None], [0.1] * 3) == [-1.5, 1.5, 0.0, 0.0, 0.0, 0.0]


# The reward less a number.


def test_less_the_number_whatever_the_group() -> None:
    assert advantages(ConstantBaseline(value=0.5), [1.0, 1.0, 0.0], [0.5]) == [0.5, 0.5, -0.5, 0.0]


def test_missing_rewards_are_zero_and_the_bound_holds() -> None:
    assert advantages(ConstantBaseline(value=1.0, clip=2.0), [None, 9.0, -9.0]) == [0.0, 2.0, -2.0]


# The reward less the mean of the other members.


def test_baseline_is_the_others() -> None:
    # 0 - (1 + 5) / 2, 1 - 5 / 2, 5 - 1 / 2; with one missing 2 - 6, 6 - 2.
    actual = advantages(LeaveOneOut(), [0.0, 1.0, 5.0], [2.0, None, 6.0], [0.1] * 3)
    assert actual == pytest.approx([-3.0, -1.5, 4.5, -4.0, 0.0, 4.0, 0.0, 0.0, 0.0])


# The length-weighted baseline of a group.


def length_weighted(*groups: list[float | None], lengths: list[float], clip: float | None = None) -> list[float]:
    return LengthWeighted(clip=clip)(grouped(*groups, lengths=lengths), Running())[0][:, 0].tolist()


def test_longer_members_weigh_more() -> None:
    # (1 * 4 + 3 * 0) / 4 = 1; the second group's (2 * 1 + 2 * 3) / 4 = 2.
    assert length_weighted([4.0, 0.0], [1.0, 3.0], lengths=[1.0, 3.0, 2.0, 2.0]) == [3.0, -1.0, -1.0, 1.0]


def test_members_without_a_decision_or_a_reward_do_not_enter() -> None:
    # Only 4 of length 2 and 1 of length 1: (8 + 1) / 3 = 3.
    assert length_weighted([4.0, None, 1.0, 100.0], lengths=[2.0, 50.0, 1.0, 0.0]) == [
        1.0,
        0.0,
        -2.0,
        97.0,
    ]


# The reward relative to its group's mean.


def test_the_rarer_a_success_the_more_it_weighs() -> None:
    assert advantages(MeanScaled(), [1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]) == pytest.approx(
        [3.0, -1.0, -1.0, -1.0, 1 / 3, 1 / 3, 1 / 3, -1.0]
    )


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


# A prompt's own past as baseline and scale, beside DDPO's tracker.


NAN = float("nan")


def per_prompt(kind: PerPrompt, history: list[list[float]] | None, *groups: list[float | None]) -> list[float]:
    rewards_of_groups = grouped(*groups)
    if history is not None:
        rewards_of_groups = replace(
            rewards_of_groups, history=torch.tensor(history, dtype=torch.float64)[rewards_of_groups.index]
        )
    return kind(rewards_of_groups, Running())[0][:, 0].tolist()


def test_the_past_and_the_group_together() -> None:
    # The docstring's numbers: 0, 0, 1, 1, 3.
    assert per_prompt(PerPrompt(min_count=4), [[0.0, 0.0, 1.0, 1.0]], [3.0]) == pytest.approx([2 / math.sqrt(1.2)])


def test_too_short_a_past_falls_back_to_the_batch() -> None:
    # First prompt: 3 rewards in all, below 4: batch of 0, 2, 4, 6 (mean 3, deviation sqrt 5). Second: 9, 9, 4, 6 (mean
    # 7, squares 18).
    values = per_prompt(PerPrompt(min_count=4), [[NAN, 8.0], [9.0, 9.0]], [0.0, 2.0], [4.0, 6.0])
    assert values == pytest.approx([-3 / math.sqrt(5), -1 / math.sqrt(5), -3 / math.sqrt(4.5), -1 / math.sqrt(4.5)])
    assert per_prompt(PerPrompt(), None, [0.0, 2.0], [4.0, 6.0])[3] == pytest.approx(3 / math.sqrt(5))


def test_the_buffer_keeps_the_newest() -> None:
    # Room for 4 beside a group of 2: the last two of the past, 1 and 1.
    values = per_prompt(PerPrompt(buffer_size=4, min_count=2), [[50.0, 1.0, 1.0]], [0.0, 2.0])
    assert values == pytest.approx([-math.sqrt(2), math.sqrt(2)])
    # A group larger than the buffer counts whole.
    assert per_prompt(PerPrompt(buffer_size=2, min_count=2), [[50.0]], [0.0, 0.0, 3.0, 3.0])[0] == pytest.approx(-1.0)


def test_the_groups_baseline_with_the_prompts_scale() -> None:
    # 0, 4, 1, 3: deviation sqrt(2.5); the group's mean is 2.
    values = per_prompt(PerPrompt(min_count=2, baseline="group"), [[0.0, 4.0], [0.0, 4.0]], [1.0, 3.0], [2.0, 2.0])
    assert values == pytest.approx([-1 / math.sqrt(2.5), 1 / math.sqrt(2.5), 0.0, 0.0])
    assert values[2:] == [0.0, 0.0]


def test_a_group_better_than_its_past_is_reinforced_as_a_whole() -> None:
    values = per_prompt(PerPrompt(min_count=2), [[0.0, 0.0, 0.0, 0.0]], [1.0, 1.0])
    assert values == pytest.approx([(2 / 3) / math.sqrt(2 / 9)] * 2)


def tracker(
    stats: dict[int, deque[float]], prompts: list[int], rewards: np.ndarray, size: int, least: int
) -> np.ndarray:
    """DDPO's tracker, written down from its description: one deque a prompt, the batch's moments until it is long
    enough.
    """
    values = np.zeros_like(rewards)
    for prompt in set(prompts):
        chosen = np.array(prompts) == prompt
        stats.setdefault(prompt, deque(maxlen=size)).extend(rewards[chosen])
        statistics_rewards = np.array(stats[prompt]) if len(stats[prompt]) >= least else rewards
        values[chosen] = (rewards[chosen] - statistics_rewards.mean()) / statistics_rewards.std()
    return values


def test_ten_batches_equal_the_tracker() -> None:
    random = np.random.default_rng(0)
    stats: dict[int, deque[float]] = {}
    past: dict[int, list[float]] = {}
    objective = Objective.preset(
        "grpo",
        **{
            "advantage.kind": "per_prompt",
            "advantage.buffer_size": 8,
            "advantage.min_count": 6,
            "divergence.kind": "none",
        },
    )
    assert "reward_history" in objective.requires_rollouts
    for _ in range(10):
        prompts = [int(p) for p in random.permutation(4)[:2].repeat(3)]
        rewards = random.normal(size=6) + np.array(prompts)
        expected = tracker(stats, prompts, rewards, 8, 6)
        rows = [past.get(prompt, [])[-8:] for prompt in prompts]
        history = torch.tensor([[NAN] * (8 - len(row)) + row for row in rows], dtype=torch.float64)
        mask = torch.ones(6, 1, dtype=torch.bool)
        group = torch.tensor(prompts)
        batch = objective.prepare(
            Rollouts(group, mask, torch.zeros(6, 1), {"r": torch.tensor(rewards)}, reward_history=history),
            objective.init(),
        )
        assert batch.advantage[:, 0].tolist() == pytest.approx(expected.tolist(), rel=1e-9)
        for prompt, reward in zip(prompts, rewards, strict=True):
            past.setdefault(prompt, []).append(float(reward))


# Each reward compared by itself, then summed and whitened.


HALF_ROOT = 1 / math.sqrt(2)


def per_reward(
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
    assert per_reward(plain, {"a": 1.0, "b": 2.0}, a=[[0.0, 1.0]], b=[[1000.0, 0.0]]) == pytest.approx(
        [HALF_ROOT, -HALF_ROOT]
    )


def test_the_sum_is_whitened_over_the_batch() -> None:
    # Sums -1, 0, 1 (std 1 of three), 0, 0: mean 0, squares 2 over 4.
    values = per_reward(PerReward(), {"a": 1.0}, a=[[0.0, 1.0, 2.0], [4.0, 4.0]])
    assert values == pytest.approx([-math.sqrt(2), 0.0, math.sqrt(2), 0.0, 0.0])
    assert values[3:] == [0.0, 0.0]


def test_population_deviation_and_floor() -> None:
    assert per_reward(PerReward(whiten=False, ddof=0), {"a": 1.0}, a=[[0.0, 2.0]]) == pytest.approx([-1.0, 1.0])
    assert per_reward(PerReward(whiten=False, min_std=10.0), {"a": 1.0}, a=[[0.0, 2.0]]) == pytest.approx([-0.1, 0.1])


def test_a_missing_reward_leaves_its_term_alone_and_weight_zero_never_counts() -> None:
    values = per_reward(
        PerReward(whiten=False),
        {"a": 1.0, "b": 1.0, "c": 0.0},
        a=[[0.0, None, 1.0]],
        b=[[0.0, 5.0, 5.0]],
        c=[[7.0, 8.0, 9.0]],
    )
    # b: mean 10/3, deviations -10/3, 5/3, 5/3, std sqrt(25/3).
    b = [-10 / 3 / math.sqrt(25 / 3), 5 / 3 / math.sqrt(25 / 3)]
    assert values == pytest.approx([-HALF_ROOT + b[0], b[1], HALF_ROOT + b[1]])


def test_flat_in_every_reward_is_exactly_zero_and_flat_in_one_is_not() -> None:
    values = per_reward(
        PerReward(),
        {"a": 1.0, "b": 1.0},
        a=[[0.1, 0.1], [1.0, 1.0], [0.0, 3.0]],
        b=[[0.3, 0.3], [0.0, 1.0], [1.0, 1.0]],
    )
    assert values[:2] == [0.0, 0.0]
    assert values[2:] == pytest.approx([-1.1180339887, 1.1180339887] * 2)  # ROOT over sqrt(4 * 0.5 / 5)


def test_a_reward_of_negative_weight_counts_against() -> None:
    # ROOT for the first's best, and as much again for being the second's worst.
    assert per_reward(PerReward(whiten=False), {"a": 1.0, "b": -1.0}, a=[[1.0, 0.0]], b=[[0.0, 1.0]]) == pytest.approx(
        [2 * HALF_ROOT, -2 * HALF_ROOT]
    )


# The place in the group's order.


def test_from_one_to_minus_one_with_average_ranks() -> None:
    # 3, 1, 1: ranks 0, 1.5, 1.5 of 2. 7, 8, 9, 10: ranks 3, 2, 1, 0 of 3.
    actual = advantages(Rank(), [3.0, 1.0, 1.0], [7.0, 8.0, 9.0, 10.0])
    assert actual == pytest.approx([1.0, -0.5, -0.5, -1.0, -1 / 3, 1 / 3, 1.0])


def test_flat_is_zero_and_the_missing_take_no_place() -> None:
    assert advantages(Rank(), [2.0, 2.0], [0.0, None, 5.0], [None, None]) == [0.0, 0.0, -1.0, 0.0, 1.0, 0.0, 0.0]


def test_ties_in_the_order_of_the_members_are_source_004_s() -> None:
    # Its code sorts twice: rewards 1, 3, 1 have the ranks 1, 0, 2; a flat group of three gets 1, 0, -1.
    actual = advantages(Rank(ties="order"), [1.0, 3.0, 1.0], [2.0, 2.0, 2.0], [0.0, None, 5.0], [4.0], [None, None])
    assert actual == [0.0, 1.0, -1.0, 1.0, 0.0, -1.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0]


# A running deviation as scale.


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


def test_the_running_mean_is_that_of_all_batches_and_a_single_reward_counts() -> None:
    # Means 2 and 6, weights 1/4 and 1/2 of 3/4: 14/3; both deviations are sqrt(2).
    kind = RunningStd(decay=0.5, baseline="running")
    _, running = kind(grouped([1.0, 3.0]), Running())
    advantage, running = kind(grouped([5.0, 7.0]), running)
    assert advantage[:, 0].tolist() == pytest.approx([1 / 3 / math.sqrt(2), 7 / 3 / math.sqrt(2)])
    # One reward has a mean and no deviation: (1/8) 2 + (1/4) 6 + (1/2) 9 over 7/8, and of sqrt(2) three sevenths.
    _, running = kind(grouped([9.0]), running)
    assert (running.mean, running.std) == pytest.approx((50 / 7, math.sqrt(2) * 3 / 7))


# Whitening over the whole batch, with or without the group's mean first.


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


# The share of its group that a member beats.


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


# The group z-score.


DEVIATION = math.sqrt(2 / 3)


@pytest.mark.parametrize(("ddof", "expected"), [(1, 1.0), (0, 1 / DEVIATION)])
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
