"""exp(x) - x - 1 with x = lp_ref - lp."""

from __future__ import annotations

import math

from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.divergence.k3 import K3


def test_value_and_gradient() -> None:
    # x = ln 2: 2 - ln 2 - 1, gradient 1 - 2; x = -ln 2: 1/2 + ln 2 - 1, gradient 1 - 1/2.
    given = member_ratios([2.0, 1.0])
    gap = math.log(2.0)
    penalty = K3()(given, given.log_prob.detach() + given.log_prob.new_tensor([[gap, -gap]]), None)
    close(penalty, [[1 - gap, gap - 0.5]])
    close(gradient(penalty, given), [[-1.0, 0.5]])


def test_beyond_the_clamp_only_the_linear_term_moves() -> None:
    # x = -1 + 200: exp(80) is constant, and -x is left, whose gradient by the log-prob is 1.
    given = member_ratios([1.0], old=-200.0)
    penalty = K3()(given, given.log_prob.detach() + 199.0, None)
    assert float(penalty.detach()) == math.exp(80.0) - 200.0
    close(gradient(penalty, given), [[1.0]])


def test_just_beyond_the_clamp() -> None:
    given = member_ratios([1.0], old=-200.0)
    penalty = K3()(given, given.log_prob.detach() + 81.0, None)
    close(gradient(penalty, given), [[1.0]])
