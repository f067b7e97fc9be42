"""Rollouts to batch: how rewards are combined, what is missing, and the reward metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from groupwise.objective import Objective
from groupwise.objective.batch import grouped_rewards
from groupwise.records import Rollouts
from groupwise.statistics import finish, sum_over_one_process

OBJECTIVE = Objective.preset("bnpo")


def rollouts(
    group: Sequence[int], rewards: Mapping[str, Any], weights: Mapping[str, float] | None = None, **more: Any
) -> Rollouts:
    mask = more.pop("mask", torch.ones(len(group), 2, dtype=torch.bool))
    return Rollouts(torch.tensor(group), mask, torch.full(mask.shape, -1.0), rewards, weights or {}, **more)


def test_a_member_with_a_missing_reward_is_left_out_or_has_what_its_other_rewards_come_to() -> None:
    # Weights 1, 3 and -2; member 0 has all, 1 lacks the second, 2 the penalty, 3 everything.
    rewards = {"correct": [1.0, 1.0, 1.0, None], "format": [1.0, None, 1.0, None], "long": [1.0, 1.0, None, None]}
    group_rollouts = rollouts([0] * 4, rewards, {"format": 3.0, "long": -2.0})
    left_out = grouped_rewards(group_rollouts, "drop", sum_over_one_process)
    assert left_out.present[:, 0].tolist() == [True, False, False, False]
    assert left_out.value[:, 0].tolist() == [2.0, 0.0, 0.0, 0.0]
    summed = grouped_rewards(group_rollouts, "sum", sum_over_one_process)
    assert summed.present[:, 0].tolist() == [True, True, True, False]
    assert summed.value[:, 0].tolist() == [2.0, -1.0, 4.0, 0.0]


def test_a_reward_that_a_whole_group_lacks_leaves_nobody_out() -> None:
    # The first group is of mathematics, the second of code; a check broke in the second.
    rewards = {"proof": [1.0, 0.0, None, None], "tests": [None, None, 1.0, None], "brief": [0.5, 0.0, 0.5, 0.5]}
    grouped = grouped_rewards(rollouts([0, 0, 1, 1], rewards), "drop", sum_over_one_process)
    assert grouped.present[:, 0].tolist() == [True, True, True, False]
    assert grouped.value[:, 0].tolist() == [1.5, 0.0, 1.5, 0.0]


def test_a_member_without_its_map_is_left_out_where_others_have_ended_too() -> None:
    mask = torch.tensor([[True, False], [True, True], [True, True]])
    rewards = {"map": torch.tensor([[1.0, 0.0], [2.0, 3.0], [5.0, 5.0]]), "whole": [1.0, 1.0, None]}
    grouped = grouped_rewards(rollouts([0, 0, 0], rewards, mask=mask), "drop", sum_over_one_process)
    assert grouped.present.tolist() == [[True, False], [True, True], [False, False]]


def test_a_reward_of_weight_zero_is_measured_and_never_counted() -> None:
    group_rollouts = rollouts([0, 0], {"correct": [1.0, None], "length": [7.0, 9.0]}, {"length": 0.0})
    rewards = grouped_rewards(group_rollouts, "drop", sum_over_one_process)
    assert rewards.value.tolist() == [[1.0], [0.0]]
    assert rewards.present.tolist() == [[True], [False]]
    assert finish(OBJECTIVE.prepare(group_rollouts, OBJECTIVE.init()).statistics)["rewards/length/mean"] == 8.0


def test_reward_maps_are_compared_place_by_place() -> None:
    group_rollouts = rollouts([0, 0], {"map": torch.tensor([[0.0, 2.0], [2.0, 2.0]]), "whole": [1.0, 1.0]})
    batch = OBJECTIVE.prepare(group_rollouts, OBJECTIVE.init())
    root = 1 / math.sqrt(2)
    torch.testing.assert_close(batch.advantage, torch.tensor([[-root, 0.0], [root, 0.0]], dtype=torch.float64))


def test_a_masked_place_of_a_reward_map_is_no_comparison() -> None:
    mask = torch.tensor([[True, True], [True, False]])
    group_rollouts = rollouts([0, 0], {"map": torch.tensor([[0.0, 2.0], [2.0, 7.0]]), "whole": [1.0, 1.0]}, mask=mask)
    batch = OBJECTIVE.prepare(group_rollouts, OBJECTIVE.init())
    assert batch.advantage[:, 1].tolist() == [0.0, 0.0]


def test_a_divergence_in_the_reward_is_subtracted_and_not_logged() -> None:
    # beta 0.5: R - 0.5 sum(lp_old - lp_ref) over valid decisions: 1 - 0.5 * 2, 1 - 0.
    objective = Objective.preset("rloo", **{"divergence.beta": 0.5})
    reference = torch.tensor([[-2.0, -2.0], [-1.0, -9.0]])
    mask = torch.tensor([[True, True], [True, False]])
    batch = objective.prepare(
        rollouts([0, 0], {"correct": [1.0, 1.0]}, mask=mask, reference_log_prob=reference), objective.init()
    )
    assert batch.advantage[:, 0].tolist() == [-1.0, 1.0]
    assert finish(batch.statistics)["reward"] == 1.0, "what is logged is the reward, not less its penalty"


def test_metrics_by_direct_computation() -> None:
    # Groups: 1, 0 (deviation 1/sqrt 2); 1, 1 (all right); 0, 0 (all wrong). Advantages +-1/sqrt 2 and four zeros.
    mask = torch.tensor([[1, 1], [1, 0], [1, 1], [1, 1], [0, 0], [1, 0]], dtype=torch.bool)
    group_rollouts = rollouts(
        [0, 0, 1, 1, 2, 2],
        {"correct": [1.0, 0.0, 1.0, 1.0, 0.0, 0.0]},
        mask=mask,
        truncated=torch.tensor([1, 0, 0, 0, 0, 0]).bool(),
    )
    numbers = finish(OBJECTIVE.prepare(group_rollouts, OBJECTIVE.init()).statistics)
    expected = {
        "reward": 0.5,
        "rewards_mean": 0.5,
        "rewards_std": math.sqrt(6 * 0.25 / 5),
        "reward_std": 1 / math.sqrt(2) / 3,
        "rewards/correct/mean": 0.5,
        "frac_reward_zero_std": 2 / 3,
        "groups/flat": 2 / 3,
        "groups/all_right": 1 / 3,
        "groups/all_wrong": 1 / 3,
        "groups/admitted": 1.0,
        "advantages_mean": 0.0,
        "advantages_std": math.sqrt(1 / 5),
        "members/unscorable": 0.0,
        "completions/mean_length": 8 / 6,
        "completions/clipped_ratio": 1 / 6,
    }
    assert {name: numbers[name] for name in expected} == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("rewards", "weights", "bounds", "expected"),
    [
        # Groups of two, each flat: at 1, at 0.5, at 0. Half a point is neither right nor wrong.
        ({"a": [1.0, 1.0, 0.5, 0.5, 0.0, 0.0]}, {}, {}, (1 / 3, 1 / 3)),
        # Logic-RL's reward: 3 is right, -3 wrong, and -0.5 (well formed, somebody wrong) is neither.
        ({"a": [3.0, 3.0, -0.5, -0.5, -3.0, -3.0]}, {}, {"a": (-3.0, 3.0)}, (1 / 3, 1 / 3)),
        # A penalty's best is 0.
        ({"a": [0.0, 0.0, -1.0, -1.0, -0.5, -0.5]}, {}, {"a": (-1.0, 0.0)}, (1 / 3, 1 / 3)),
        # Two rewards, one of negative weight: the most is 2 * 1 - 0.5 * 0, the least 0 - 0.5. The judge counts for
        # nothing.
        (
            {"a": [1.0, 1.0, 0.0, 0.0, 1.0, 1.0], "b": [0.0, 0.0, 1.0, 1.0, 1.0, 1.0], "j": [9.0] * 6},
            {"a": 2.0, "b": -0.5, "j": 0.0},
            {},
            (1 / 3, 1 / 3),
        ),
        # Decibels have no end, and no group is all right at 31.
        ({"a": [31.0, 31.0, 1e-9, 0.5, 28.0, 28.0]}, {}, {}, (0.0, 0.0)),
        # A member with a missing part is left out.
        (
            {"a": [1.0, 1.0, None, 1.0, 0.0, None], "b": [None, 1.0, 1.0, 1.0, 0.0, 0.0]},
            {"a": 0.1, "b": 0.2},
            {},
            (2 / 3, 1 / 3),
        ),
    ],
)
def test_all_right_is_the_most_that_rewards_can_give(
    rewards: Any, weights: Any, bounds: Any, expected: tuple[float, float]
) -> None:
    numbers = finish(
        OBJECTIVE.prepare(
            rollouts([0, 0, 1, 1, 2, 2], rewards, weights, reward_bounds=bounds), OBJECTIVE.init()
        ).statistics
    )
    assert (numbers["groups/all_right"], numbers["groups/all_wrong"]) == pytest.approx(expected)


def test_admission_covers_whole_groups() -> None:
    objective = Objective.preset("dapo")
    batch = objective.prepare(rollouts([7, 3, 7, 3], {"correct": [1.0, 0.0, 1.0, 1.0]}), objective.init())
    assert batch.admitted.tolist() == [False, True, False, True]
    assert finish(batch.statistics)["groups/admitted"] == 0.5


@pytest.mark.parametrize("name", ["reference_log_prob", "behaviour_log_prob"])
def test_a_field_that_is_read_must_be_there(name: str) -> None:
    objective = Objective.preset("grpo" if name == "reference_log_prob" else "bnpo+tis")
    assert objective.requires_rollouts == {name}
    with pytest.raises(ValueError, match=f"Rollouts.{name} is missing.*pass Rollouts"):
        objective.prepare(rollouts([0, 0], {"correct": [1.0, 0.0]}), objective.init())


def test_a_policy_term_needs_a_reward_and_a_supervised_stage_does_not() -> None:
    with pytest.raises(ValueError, match=r"Rollouts.rewards is empty"):
        OBJECTIVE.prepare(rollouts([0, 0], {}), OBJECTIVE.init())
    supervised = Objective.preset("bnpo", policy_weight=0.0)
    batch = supervised.prepare(rollouts([0, 0], {}), supervised.init())
    assert not batch.advantage.any()


@pytest.mark.parametrize("name", ["rloo", "opo", "dr_grpo", "grpo", "max_rl"])
def test_rewards_too_large_for_their_squares_are_named(name: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"Rollouts.rewards\['correct'\]\[1\] is 1e\+308, whose square overflows; divide the reward, or bound it",
    ):
        Objective.preset(name).prepare(rollouts([0, 0], {"correct": [0.0, 1e308]}), Objective.preset(name).init())
    with pytest.raises(
        ValueError,
        match=r"the weighted sum of rewards comes to 1e\+160, whose square overflows; lower Rollouts.reward_weights",
    ):
        grouped_rewards(rollouts([0, 0], {"correct": [0.0, 1e140]}, {"correct": 1e20}), "sum", sum_over_one_process)


def test_advantages_too_large_for_a_gradient_are_named() -> None:
    group_rollouts = rollouts([0, 0], {"correct": [0.0, 1e40]}, reference_log_prob=torch.full((2, 2), -1.0))
    for name, size in (("rloo", "1e\\+40"), ("opo", "5e\\+39"), ("dr_grpo", "5e\\+39")):
        objective = Objective.preset(name)
        with pytest.raises(
            ValueError,
            match=(
                f"advantage.kind = .* gives advantages up to {size}, and fp32 holds .*; divide the reward or its weight"
            ),
        ):
            objective.prepare(group_rollouts, objective.init())
    # What is scaled by its own deviation, or bounded, has room for them.
    for objective in (OBJECTIVE, Objective.preset("rloo", **{"advantage.clip": 5.0})):
        assert objective.prepare(group_rollouts, objective.init()).advantage.abs().max() <= 5.0


def test_a_rewards_share_is_of_what_the_advantage_compares() -> None:
    # Spreads of 1000 and of 1, uncorrelated: of the weighted sum the first makes all but a millionth, of the sum of
    # z-scores a half.
    group_rollouts = rollouts([0, 0, 0, 0], {"large": [0.0, 0.0, 1000.0, 1000.0], "small": [0.0, 1.0, 0.0, 1.0]})
    shares = {}
    for kind in ("centred", "per_reward"):
        objective = Objective.preset("bnpo", **{"advantage.kind": kind})
        metrics = finish(objective.prepare(group_rollouts, objective.init()).statistics)
        shares[kind] = [metrics[f"rewards/{name}/share"] for name in ("large", "small")]
    assert shares["centred"] == pytest.approx([1 / (1 + 1e-6), 1e-6 / (1 + 1e-6)])
    assert shares["per_reward"] == pytest.approx([0.5, 0.5])


def test_correlations_are_those_inside_groups() -> None:
    # Between groups reward and length fall together; inside the first they rise together, inside the second in part.
    lengths = torch.tensor([1, 2, 3, 7, 8, 9])
    sampled = rollouts(
        [0, 0, 0, 1, 1, 1],
        {"paid": [10.0, 11.0, 12.0, 1.0, 3.0, 2.0], "judge": [3.0, 2.0, 1.0, None, 1.0, 2.0]},
        {"paid": 1.0, "judge": 0.0},
        mask=torch.arange(9)[None, :] < lengths[:, None],
    )
    numbers = finish(OBJECTIVE.prepare(sampled, OBJECTIVE.init()).statistics)
    # Deviations of the reward -1 0 1 | -1 1 0, of the length -1 0 1 | -1 0 1.
    assert numbers["groups/length_correlation"] == pytest.approx((2 + 1) / 4)
    # Of those with a judge: reward -1 0 1 | .5 -.5, judge 1 0 -1 | -.5 .5.
    assert numbers["rewards/judge/agreement"] == pytest.approx(-1.0)
    assert "rewards/paid/agreement" not in numbers
    # Deviations over the group's own spread are still in proportion inside a group.
    assert 0.99 < numbers["advantages/agreement"] <= 1 + 1e-12


@pytest.mark.parametrize("kind", ["rloo", "reinforce_pp", "gdpo"])
def test_the_advantage_agrees_with_what_it_compares(kind: str) -> None:
    # The better members are far from the reference, or cost more than the two small rewards together.
    rewards = {"correct": [1.0, 1.0, 0.0, 0.0], "form": [1.0, 1.0, 0.0, 0.0]}
    reference = torch.tensor([-99.0, -98.0, -1.0, -1.0])[:, None].expand(4, 2)
    if kind == "gdpo":
        sampled = rollouts([0] * 4, {**rewards, "cost": [-300.0, -280.0, -100.0, -120.0]})
    else:
        sampled = rollouts([0] * 4, {**rewards}, reference_log_prob=10 * reference)
    objective = Objective.preset(kind)
    assert finish(objective.prepare(sampled, objective.init()).statistics)["advantages/agreement"] > 0.9
