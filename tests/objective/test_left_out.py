"""Members that do not train: one whose reward is missing was not sampled, one that was cut off trains no token."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.objective.small import close

from groupwise.objective import Objective
from groupwise.records import Rollouts, Scored
from groupwise.statistics import finish

METHODS = ["grpo", "dapo", "dr_grpo", "gspo", "rloo", "bnpo", "cispo", "sapo", "luspo", "gdpo", "opo", "max_rl"]
LENGTHS = [2, 3, 1, 20]


def gradient(objective: Objective, members: list[int], rewards: dict[str, list[Any]], **more: Any) -> torch.Tensor:
    """Returns the gradient at the decisions of some members of a group, and of another group beside it."""
    lengths = [*(LENGTHS[member] for member in members), 4, 2]
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    generator = torch.Generator().manual_seed(0)
    drawn = -0.2 - torch.rand(6, 20, generator=generator, dtype=torch.float64)
    log_prob = drawn[[*members, 4, 5], : mask.shape[1]]
    truncated = more.pop("truncated", None)
    rollouts = Rollouts(
        group=torch.tensor([0] * len(members) + [1, 1]),
        mask=mask,
        old_log_prob=log_prob,
        rewards={name: [*(values[member] for member in members), 1.0, 0.0] for name, values in rewards.items()},
        reference_log_prob=log_prob - 0.3,
        behaviour_log_prob=log_prob + 0.01,
        truncated=None
        if truncated is None
        else torch.tensor([*(truncated[member] for member in members), False, False]),
        **more,
    )
    live = (log_prob + 0.1).requires_grad_()
    batch = objective.prepare(rollouts, objective.init())
    objective.loss(Scored(live), objective.plan(batch)).backward()
    return live.grad


@pytest.mark.parametrize("method", METHODS)
def test_a_member_with_a_missing_reward_counts_as_not_sampled(method: str) -> None:
    objective = Objective.preset(method, **{"divergence.kind": "k3", "divergence.beta": 0.05, "admission.kind": "all"})
    rewards = {"correct": [1.0, 0.0, 1.0, None], "shape": [1.0, 0.5, 0.0, 1.0]}
    weights = {"correct": 1.0, "shape": 0.2}
    beside = gradient(objective, [0, 1, 2, 3], rewards, reward_weights=weights)
    alone = gradient(objective, [0, 1, 2], rewards, reward_weights=weights)
    assert not beside[3].any()
    close(beside[[0, 1, 2, 4, 5], :4], alone)


@pytest.mark.parametrize("method", ["grpo", "dapo", "dr_grpo"])
def test_a_group_with_one_member_left_has_no_advantage_and_is_counted(method: str) -> None:
    objective = Objective.preset(method)
    mask = torch.ones(4, 2, dtype=torch.bool)
    rollouts = Rollouts(
        torch.tensor([0, 0, 1, 1]),
        mask,
        torch.full((4, 2), -1.0),
        {"correct": [1.0, None, 1.0, 0.0]},
        reference_log_prob=torch.full((4, 2), -1.0),
    )
    batch = objective.prepare(rollouts, objective.init())
    assert batch.advantage[:2].tolist() == [[0.0], [0.0]]
    numbers = finish(batch.statistics)
    assert (numbers["groups/too_small"], numbers["members/unscorable"]) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("method", "share"),
    [
        (
            "bnpo",
            12 / 32,
        ),  # the mean over decisions: 6 of this group and 6 of the other, without the 20 that were cut off
        ("dapo", 12 / 32),
        ("grpo", 1.0),  # the mean over members counts the one that was cut off
        ("dr_grpo", 1.0),
    ],
)
def test_what_was_cut_off_trains_no_token_and_keeps_its_reward(method: str, share: float) -> None:
    changes = {"divergence.kind": "none", "admission.kind": "all"}
    rewards, truncated = {"correct": [1.0, 0.0, 1.0, 0.0]}, [False, False, False, True]
    plain = gradient(Objective.preset(method, **changes), [0, 1, 2, 3], rewards, truncated=truncated)
    masked = gradient(
        Objective.preset(method, mask_truncated=True, **changes), [0, 1, 2, 3], rewards, truncated=truncated
    )
    assert plain[3].any()
    assert not masked[3].any()
    close(masked[[0, 1, 2, 4, 5]] * share, plain[[0, 1, 2, 4, 5]])


def test_rounding_of_a_reward_model_is_no_advantage() -> None:
    value = torch.tensor([17.3] * 4)
    noisy = torch.stack(
        [value[0], value[1], torch.nextafter(value[2], value[2] * 2), torch.nextafter(value[3], value[3] * 0)]
    )
    rollouts = Rollouts(
        torch.zeros(4, dtype=torch.long), torch.ones(4, 1, dtype=torch.bool), torch.full((4, 1), -1.0), {"r": noisy}
    )
    for method in ("dapo", "gspo", "rloo", "gdpo"):
        objective = Objective.preset(method, **{"divergence.kind": "none"})
        assert not objective.prepare(rollouts, objective.init()).advantage.any(), method
    finer = Objective.preset("gspo", reward_rounding=1e-14, **{"divergence.kind": "none"})
    assert finer.prepare(rollouts, finer.init()).advantage.any()
