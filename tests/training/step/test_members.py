"""Members are numbered by the place of their group, and rounds of different lengths join into one batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.training.step.test_update import gathered
from tests.training.toy import recipe

from groupwise.reward import RewardError
from groupwise.training.step.collect import RewardedMembers, member_ids


def test_ids_number_the_members_of_a_group_in_any_order_of_rows() -> None:
    shuffled = torch.tensor([4, 0, 9, 4, 0, 4])
    assert [(number >> 32, number & 0xFFFF) for number in member_ids(shuffled).tolist()] == [
        (4, 0),
        (0, 0),
        (9, 0),
        (4, 1),
        (0, 1),
        (4, 2),
    ]


def test_joined_rounds_keep_the_fields_of_every_member() -> None:
    collected = gathered(recipe(group_size=3))[2]
    samples, size = collected.samples, len(collected.samples)
    samples = replace(samples, reference_log_prob=-samples.old_log_prob.abs() - 1)
    members = RewardedMembers(samples, collected.place, collected.table, torch.arange(2.0 * size).view(size, 2))
    first, last = members.select(torch.arange(3)), members.select(torch.arange(3, size))
    short = replace(
        first.samples,
        mask=first.samples.mask[:, :1],
        old_log_prob=first.samples.old_log_prob[:, :1],
        reference_log_prob=first.samples.reference_log_prob[:, :1],
        recorded=None,
        payload={},
    )
    joined = RewardedMembers.concatenate(
        [replace(first, samples=short), replace(last, samples=replace(last.samples, payload={}))]
    )
    reference, expected = joined.samples.reference_log_prob, samples.reference_log_prob
    assert torch.equal(joined.place, members.place)
    assert torch.equal(joined.reward_history, members.reward_history)
    assert torch.equal(reference[3:], expected[3:])
    assert torch.equal(reference[:3, 0], expected[:3, 0])
    assert not reference[:3, 1:].any()
    rollouts = joined.rollouts(frozenset({"behaviour_log_prob"}), density=False)
    assert torch.equal(rollouts.behaviour_log_prob, joined.samples.old_log_prob)
    assert members.rollouts(frozenset(), density=False).behaviour_log_prob is None


def test_a_round_without_reference_joins_without_one() -> None:
    collected = gathered(recipe(group_size=3))[2]
    members = RewardedMembers(collected.samples, collected.place, collected.table)
    joined = RewardedMembers.concatenate([members, members])
    assert joined.samples.reference_log_prob is None
    assert joined.reward_history is None
    assert len(joined.samples) == 2 * len(collected.samples)


def test_a_map_of_another_size_than_the_decisions_is_refused_by_name() -> None:
    collected = gathered(recipe(group_size=3))[2]
    name, values = next(iter(collected.table.values.items()))
    table = replace(collected.table, maps={name: [np.zeros((3, 7))] * len(values)})
    members = RewardedMembers(collected.samples, collected.place, table)
    num_decisions = collected.samples.mask.shape[1]
    with pytest.raises(RewardError, match=rf"reward '{name}' gave a map of \[3, 7\] numbers for member 0") as caught:
        members.rollouts(frozenset(), density=False)
    assert f"has {num_decisions} decisions; write one number a member" in str(caught.value)
