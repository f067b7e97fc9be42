"""GMPO: clipped log-ratios, then the geometric mean of the member."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import ValidationError
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective import Objective
from groupwise.objective.trust import Gmpo
from groupwise.records import Rollouts
from groupwise.statistics import finish


def test_one_sided_clip_then_the_geometric_mean() -> None:
    # Bounds ln 2. Good: min(4, 2), 1/4 -> sqrt(2/4); bad: 4, max(1/4, 1/2) -> sqrt(4/2). The clipped decision carries
    # nothing, the other half the ratio.
    decisions = member_ratios([4.0, 0.25], [4.0, 0.25], advantage=[3.0, -3.0])
    surrogate = Gmpo(low=math.log(2), high=math.log(2))(decisions.log_ratio, decisions)
    good, bad = 3 * math.sqrt(0.5), -3 * math.sqrt(2.0)
    close(surrogate.value, [[good, good], [bad, bad]])
    close(gradient(surrogate.value, decisions), [[0.0, good], [bad, 0.0]])
    assert surrogate.alive.tolist() == [[False, True], [True, False]]
    assert finish(surrogate.statistics) == {
        "clip_ratio/low_mean": 0.25,
        "clip_ratio/high_mean": 0.25,
        "clip_ratio/region_mean": 0.5,
    }


def test_each_side_has_its_own_bound() -> None:
    # Bounds ln 4 above and ln 2 below. Good: min(8, 4), 1/4 -> 1; bad: 8, max(1/8, 1/2) -> sqrt(4) and 8, 1/1.5
    # (inside) -> sqrt(8 / 1.5).
    decisions = member_ratios([8.0, 0.25], [8.0, 0.125], [8.0, 1 / 1.5], advantage=[1.0, -1.0, -1.0])
    surrogate = Gmpo(low=math.log(2), high=math.log(4))(decisions.log_ratio, decisions)
    is_inside = -math.sqrt(8 / 1.5)
    close(surrogate.value, [[1.0, 1.0], [-2.0, -2.0], [is_inside, is_inside]])
    close(gradient(surrogate.value, decisions), [[0.0, 1.0], [-2.0, 0.0], [is_inside, is_inside]])
    between = member_ratios([1.0, 0.4], advantage=-1.0)
    assert Gmpo(low=math.log(4), high=math.log(2))(between.log_ratio, between).alive.all()


def test_holes_and_empty_members() -> None:
    decisions = member_ratios([2.0, None, 0.5], [None, None, None], advantage=1.0)
    surrogate = Gmpo(low=1.0, high=1.0)(decisions.log_ratio, decisions)
    close(decisions.masked(surrogate.value), [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    close(gradient(surrogate.value, decisions), [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])


def test_advantage_zero_and_positive_bounds() -> None:
    decisions = member_ratios([5.0], advantage=0.0)
    close(Gmpo()(decisions.log_ratio, decisions).value, [[0.0]])
    with pytest.raises(ValidationError, match="high"):
        Gmpo(high=0.0)


def test_takes_one_advantage_a_member() -> None:
    objective = Objective.preset("gmpo")
    rollouts = Rollouts(
        torch.tensor([0, 0]),
        torch.ones(2, 2, dtype=torch.bool),
        torch.full((2, 2), -1.0),
        {"map": torch.tensor([[0.0, 1.0], [1.0, 0.0]])},
    )
    with pytest.raises(ValueError, match=r"trust.kind = 'gmpo' takes one advantage a member.*reward is a map"):
        objective.prepare(rollouts, objective.init())


def test_a_log_ratio_at_its_bound_keeps_its_gradient() -> None:
    decisions = member_ratios([2.0, 1.0], [0.5, 1.0], advantage=[1.0, -1.0], old=0.0)
    surrogate = Gmpo(low=math.log(2), high=math.log(2))(decisions.log_ratio, decisions)
    assert surrogate.alive.all()
    close(gradient(surrogate.value, decisions), [[math.sqrt(2.0)] * 2, [-math.sqrt(0.5)] * 2])
