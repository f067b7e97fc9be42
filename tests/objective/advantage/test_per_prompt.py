"""A prompt's own past as baseline and scale, beside DDPO's tracker."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.objective.advantage.groups import grouped

from groupwise.objective import Objective
from groupwise.objective.advantage import PerPrompt
from groupwise.objective.batch import Running
from groupwise.records import Rollouts

NAN = float("nan")


def advantages(kind: PerPrompt, history: list[list[float]] | None, *groups: list[float | None]) -> list[float]:
    rewards_of_groups = grouped(*groups)
    if history is not None:
        rewards_of_groups = replace(
            rewards_of_groups, history=torch.tensor(history, dtype=torch.float64)[rewards_of_groups.index]
        )
    return kind(rewards_of_groups, Running())[0][:, 0].tolist()


def test_the_past_and_the_group_together() -> None:
    # The docstring's numbers: 0, 0, 1, 1, 3.
    assert advantages(PerPrompt(min_count=4), [[0.0, 0.0, 1.0, 1.0]], [3.0]) == pytest.approx([2 / math.sqrt(1.2)])


def test_too_short_a_past_falls_back_to_the_batch() -> None:
    # First prompt: 3 rewards in all, below 4: batch of 0, 2, 4, 6 (mean 3, deviation sqrt 5). Second: 9, 9, 4, 6 (mean
    # 7, squares 18).
    values = advantages(PerPrompt(min_count=4), [[NAN, 8.0], [9.0, 9.0]], [0.0, 2.0], [4.0, 6.0])
    assert values == pytest.approx([-3 / math.sqrt(5), -1 / math.sqrt(5), -3 / math.sqrt(4.5), -1 / math.sqrt(4.5)])
    assert advantages(PerPrompt(), None, [0.0, 2.0], [4.0, 6.0])[3] == pytest.approx(3 / math.sqrt(5))


def test_the_buffer_keeps_the_newest() -> None:
    # Room for 4 beside a group of 2: the last two of the past, 1 and 1.
    values = advantages(PerPrompt(buffer_size=4, min_count=2), [[50.0, 1.0, 1.0]], [0.0, 2.0])
    assert values == pytest.approx([-math.sqrt(2), math.sqrt(2)])
    # A group larger than the buffer counts whole.
    assert advantages(PerPrompt(buffer_size=2, min_count=2), [[50.0]], [0.0, 0.0, 3.0, 3.0])[0] == pytest.approx(-1.0)


def test_the_groups_baseline_with_the_prompts_scale() -> None:
    # 0, 4, 1, 3: deviation sqrt(2.5); the group's mean is 2.
    values = advantages(PerPrompt(min_count=2, baseline="group"), [[0.0, 4.0], [0.0, 4.0]], [1.0, 3.0], [2.0, 2.0])
    assert values == pytest.approx([-1 / math.sqrt(2.5), 1 / math.sqrt(2.5), 0.0, 0.0])
    assert values[2:] == [0.0, 0.0]


def test_a_group_better_than_its_past_is_reinforced_as_a_whole() -> None:
    values = advantages(PerPrompt(min_count=2), [[0.0, 0.0, 0.0, 0.0]], [1.0, 1.0])
    assert values == pytest.approx([(2 / 3) / math.sqrt(2 / 9)] * 2)


def test_missing_rewards_stay_at_zero_and_out_of_the_statistics() -> None:
    values = advantages(PerPrompt(min_count=2), [[0.0, 2.0]], [None, 4.0])
    assert values == pytest.approx([0.0, 2 / math.sqrt(8 / 3)])


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


def test_a_history_of_another_shape_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"Rollouts.reward_history must be a float tensor \[B, H\] with B = 1, got torch.float32 \[2, 1\]",
    ):
        Rollouts(
            torch.tensor([0]),
            torch.ones(1, 1, dtype=torch.bool),
            torch.zeros(1, 1),
            {"r": [1.0]},
            reward_history=torch.zeros(2, 1),
        )
