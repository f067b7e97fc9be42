"""Clip-Cov: a few decisions of high covariance, drawn by keyed lots, lose their gradient."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from tests.objective.small import close, gradient, member_ratios, recorded

from groupwise.objective.decisions import keyed_uniform
from groupwise.objective.trust import Clip, ClipCov
from groupwise.statistics import finish


def test_a_drawn_decision_loses_its_gradient() -> None:
    # A = 1, -1; ln r = +-ln 2 around lp -1, mean 0. Covariances ln 2, -ln 2 | -ln 2, ln 2. Between 0.5 and 1: two; half
    # of four are drawn: both.
    decisions = member_ratios([2.0, 0.5], [2.0, 0.5], advantage=[1.0, -1.0])
    surrogate = ClipCov(low=2.0, high=2.0, share=0.5, lower=0.5, upper=1.0)(decisions.log_ratio, decisions)
    close(surrogate.value, [[0.0, 0.5], [-2.0, 0.0]])
    close(gradient(surrogate.value, decisions), [[0.0, 0.5], [-2.0, 0.0]])
    assert surrogate.alive.tolist() == [[False, True], [True, False]]
    assert finish(surrogate.statistics)["clip_cov/drawn_mean"] == 0.5


def test_what_the_clip_holds_is_not_eligible() -> None:
    # As above with the clip at 0.2: the good 2 and the bad 1/2 are held already, so nothing is drawn and their
    # constants stay.
    decisions = member_ratios([2.0, 0.5], [2.0, 0.5], advantage=[1.0, -1.0])
    region, clip = ClipCov(low=0.2, high=0.2, share=0.5, lower=0.5, upper=1.0), Clip()
    mine, plain = region(decisions.log_ratio, decisions), clip(decisions.log_ratio, decisions)
    close(mine.value, plain.value.tolist())
    assert mine.alive.equal(plain.alive)
    assert finish(mine.statistics)["clip_cov/drawn_mean"] == 0.0


def test_at_least_one_is_drawn_and_the_smallest_lot_it_is() -> None:
    # Every covariance of a member of one advantage apart from the others' lies in the wide interval; share N < 1 draws
    # one.
    decisions = member_ratios([1.1, 1.2, 1.3], [0.9, 0.8, 0.7], advantage=[1.0, -1.0])
    for step in range(5):
        log_prob = recorded(replace(decisions, draw=step), member=torch.tensor([3, 8]))
        alive = ClipCov(share=0.0002, lower=-9.0, upper=9.0)(log_prob.log_ratio, log_prob).alive
        lots = keyed_uniform(torch.tensor([[3], [8]]), torch.arange(3), step)
        assert (~alive).nonzero().tolist() == (lots == lots.min()).nonzero().tolist()


def test_draws_change_with_the_step_and_go_with_the_member() -> None:
    ratios = [[1.0 + 0.01 * t for t in range(20)], [1.0 - 0.01 * t for t in range(20)]]
    decisions = member_ratios(*ratios, advantage=[1.0, -1.0])
    region = ClipCov(share=0.2, lower=-9.0, upper=9.0)
    first_draw = region(decisions.log_ratio, decisions).alive
    assert int((~first_draw).sum()) == 8
    assert not region(decisions.log_ratio, replace(decisions, draw=1)).alive.equal(first_draw)
    second_draw = member_ratios(*reversed(ratios), advantage=[-1.0, 1.0])
    assert region(second_draw.log_ratio, recorded(second_draw, member=torch.tensor([1, 0]))).alive.equal(
        first_draw.flip(0)
    )


def test_the_interval_is_one() -> None:
    with pytest.raises(ValidationError, match=r"lower \(5.0\) must be below upper"):
        ClipCov(lower=5.0)
    assert math.isclose(ClipCov().share, 2e-4)
