"""Members are numbered by the place of their group, and rounds of different lengths join into one batch."""

from __future__ import annotations

import torch
from tests.training.step.test_update import gathered
from tests.training.toy import recipe

from groupwise.training.step.members import RewardedMembers, member_ids


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
    members = RewardedMembers(
        samples,
        collected.place,
        collected.table,
        -samples.old_log_prob.abs() - 1,
        torch.arange(2.0 * size).view(size, 2),
    )
    first, last = members.select(torch.arange(3)), members.select(torch.arange(3, size))
    short = RewardedMembers(
        first.samples, first.place, first.table, first.reference_log_prob[:, :1], first.reward_history
    )
    joined = RewardedMembers.concatenate([short, last])
    assert torch.equal(joined.place, members.place)
    assert torch.equal(joined.reward_history, members.reward_history)
    assert torch.equal(joined.reference_log_prob[3:], members.reference_log_prob[3:])
    assert torch.equal(joined.reference_log_prob[:3, 0], members.reference_log_prob[:3, 0])
    assert not joined.reference_log_prob[:3, 1:].any()
    rollouts = joined.rollouts(frozenset({"behaviour_log_prob"}), density=False)
    assert torch.equal(rollouts.behaviour_log_prob, joined.samples.old_log_prob)
    assert members.rollouts(frozenset(), density=False).behaviour_log_prob is None


def test_a_round_without_reference_joins_without_one() -> None:
    collected = gathered(recipe(group_size=3))[2]
    members = RewardedMembers(collected.samples, collected.place, collected.table)
    joined = RewardedMembers.concatenate([members, members])
    assert joined.reference_log_prob is None
    assert joined.reward_history is None
    assert len(joined.samples) == 2 * len(collected.samples)
