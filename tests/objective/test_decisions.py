"""Decisions: counts, positions and means over what is valid."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.objective.small import close, member_ratios, recorded

from groupwise.objective.decisions import Decisions
from groupwise.statistics import finish


def test_positions_count_valid_decisions() -> None:
    decisions = member_ratios([2.0, None, 4.0], [None, None, None])
    assert decisions.count.tolist() == [[2.0], [1.0]]
    assert decisions.position[0, [0, 2]].tolist() == [0, 1]
    assert decisions.occupied.tolist() == [[True], [False]]
    assert recorded(decisions, packed=True).position.tolist() == [[0, 1, 2]]
    close(decisions.mean(decisions.log_ratio.exp()), [[3.0], [0.0]])
    close(decisions.masked(decisions.log_ratio.exp(), fill=-1.0), [[2.0, -1.0, 4.0], [-1.0] * 3])


def test_a_log_ratio_is_held_where_its_exponential_overflows_and_keeps_its_gradient() -> None:
    log_prob = torch.tensor([[-1.0, -500.0, -3.0, float("-inf")]], requires_grad=True)
    old = torch.tensor([[-400.0, -2.0, -2.5, -1.0]])
    mask = torch.ones(1, 4, dtype=torch.bool)
    log_ratio = Decisions.of(mask, log_prob, old, torch.ones(1, 4)).log_ratio
    log_ratio.backward(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    limit = log_ratio[0, 0].item()
    assert 39 < limit < 41
    assert log_ratio.tolist() == [[limit, -limit, -0.5, -limit]]
    assert log_prob.grad is not None
    assert log_prob.grad.tolist() == [[1.0, 2.0, 3.0, 4.0]]
    wide = Decisions.of(mask, log_prob.double(), old.double(), torch.ones(1, 4).double()).log_ratio[0].tolist()
    assert wide[0] == -wide[3]
    assert 300 < wide[0] < 354
    assert wide[1:3] == [-wide[0], -0.5]


def test_good_and_bad_by_the_members_advantage_or_by_the_decisions() -> None:
    decisions = member_ratios([2.0, 1.0], [1.0, 1.0], [1.0, 1.0], advantage=[1.0, -1.0, 0.0])
    assert decisions.good.tolist() == [[True] * 2, [False] * 2, [False] * 2]
    by_member = replace(decisions, member_advantage=decisions.advantage[:, :1])
    assert by_member.good.tolist() == [[True], [False], [False]]
    assert by_member.bad.tolist() == [[False], [True], [False]]


def test_statistics_count_valid_decisions_alone() -> None:
    decisions = member_ratios([2.0, None, 4.0], [6.0, None, None])
    ratio = decisions.log_ratio.exp()
    assert finish({"mean": decisions.average(ratio), "share": decisions.share(lambda: ratio > 3)}) == pytest.approx(
        {"mean": 4.0, "share": 2 / 3}
    )
