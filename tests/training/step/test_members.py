"""Members are numbered by the place of their group, and rounds of different lengths join into one batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.training.step.test_update import gathered
from tests.training.toy import recipe

from groupwise.domain.protocol import Samples
from groupwise.reward import RewardError


def test_ids_number_the_members_of_a_group_in_any_order_of_rows() -> None:
    members = gathered(recipe(group_size=3))[2].samples.select(torch.arange(6))
    shuffled = replace(members, place=torch.tensor([4, 0, 9, 4, 0, 4]))
    ids = shuffled.rollouts(frozenset(), density=False).member
    expected = [(4, 0), (0, 0), (9, 0), (4, 1), (0, 1), (4, 2)]
    assert [(number >> 32, number & 0xFFFF) for number in ids.tolist()] == expected


def test_joined_rounds_keep_the_fields_of_every_member() -> None:
    samples = gathered(recipe(group_size=3))[2].samples
    size = len(samples)
    members = replace(
        samples,
        payload={},
        reference_log_prob=-samples.old_log_prob.abs() - 1,
        reward_history=torch.arange(2.0 * size).view(size, 2),
    )
    first, last = members.select(torch.arange(3)), members.select(torch.arange(3, size))
    short = replace(
        first,
        mask=first.mask[:, :1],
        old_log_prob=first.old_log_prob[:, :1],
        reference_log_prob=first.reference_log_prob[:, :1],
        recorded=None,
    )
    joined = Samples.concatenate([short, last])
    reference, expected = joined.reference_log_prob, members.reference_log_prob
    assert torch.equal(joined.place, members.place)
    assert torch.equal(joined.reward_history, members.reward_history)
    assert joined.rewards.values == members.rewards.values
    assert torch.equal(reference[3:], expected[3:])
    assert torch.equal(reference[:3, 0], expected[:3, 0])
    assert not reference[:3, 1:].any()
    rollouts = joined.rollouts(frozenset({"behaviour_log_prob"}), density=False)
    assert torch.equal(rollouts.behaviour_log_prob, joined.old_log_prob)
    assert members.rollouts(frozenset(), density=False).behaviour_log_prob is None


def test_a_round_without_reference_joins_without_one() -> None:
    members = replace(gathered(recipe(group_size=3))[2].samples, reward_history=None)
    joined = Samples.concatenate([members, members])
    assert joined.reference_log_prob is None
    assert joined.reward_history is None
    assert len(joined) == len(joined.rewards) == 2 * len(members)


def test_a_map_of_another_size_than_the_decisions_is_refused_by_name() -> None:
    samples = gathered(recipe(group_size=3))[2].samples
    name, values = next(iter(samples.rewards.values.items()))
    members = replace(samples, rewards=replace(samples.rewards, maps={name: [np.zeros((3, 7))] * len(values)}))
    num_decisions = samples.mask.shape[1]
    with pytest.raises(RewardError, match=rf"reward '{name}' gave a map of \[3, 7\] numbers for member 0") as caught:
        members.rollouts(frozenset(), density=False)
    assert f"has {num_decisions} decisions; write one number a member" in str(caught.value)
