"""KL-Cov: no clip, a penalty on the decisions of highest covariance."""

from __future__ import annotations

import math

import pytest
import torch
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.trust.kl_cov import KlCov
from groupwise.statistics import finish

LN2 = math.log(2.0)


def test_the_top_decisions_pay_for_their_distance() -> None:
    # Means of A and d are 0: covariances 2 ln 2 on the good decision that grew and the bad one that fell, -2 ln 2 on the others; half of four are held.
    given = member_ratios([2.0, 0.5], [2.0, 0.5], advantage=[2.0, -2.0])
    surrogate = KlCov(share=0.5, coefficient=0.5)(given.log_ratio, given)
    close(surrogate.value, [[4.0 - 0.5 * LN2, 1.0], [-4.0, -1.0 - 0.5 * LN2]])
    close(gradient(surrogate.value, given), [[4.0 - 0.5, 1.0], [-4.0, -1.0 + 0.5]])
    assert surrogate.alive.all()
    assert finish(surrogate.statistics) == {"kl_cov/held_mean": 0.5}


def test_where_the_advantage_is_zero_the_penalty_stands_alone() -> None:
    # Mean A is 0: the flat member's covariance is 0, the largest; a bad decision that grew and a good one that fell lie below.
    given = member_ratios([4.0], [0.25], [2.0], advantage=[-1.0, 1.0, 0.0])
    surrogate = KlCov(share=0.3)(given.log_ratio, given)
    close(surrogate.value, [[-4.0], [0.25], [-LN2]])
    close(gradient(surrogate.value, given), [[-4.0], [0.25], [-1.0]])


def test_on_policy_the_penalty_has_no_gradient() -> None:
    given = member_ratios([1.0], [1.0], advantage=[1.0, -1.0])
    close(gradient(KlCov(share=1.0)(given.log_ratio, given).value, given), [[1.0], [-1.0]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exactly_as_many_as_asked_for(dtype: torch.dtype) -> None:
    given = member_ratios(*([math.exp(math.sin(7 * b + t)) for t in range(25)] for b in range(4)), advantage=[1.0, -1.0, 0.5, -2.0], dtype=dtype)
    held = finish(KlCov(share=0.17)(given.log_ratio, given).statistics)["kl_cov/held_mean"]
    assert held == 0.17


def test_ties_that_do_not_all_fit_are_left_out() -> None:
    # Every group flat: all covariances are 0.
    given = member_ratios([2.0, 0.5], [4.0, 1.0], advantage=0.0)
    assert finish(KlCov(share=0.5)(given.log_ratio, given).statistics)["kl_cov/held_mean"] == 0.0
