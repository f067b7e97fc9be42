"""lp - lp_ref."""

from __future__ import annotations

from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.divergence.k1 import K1


def test_value_and_gradient() -> None:
    given = member_ratios([2.0, 1.0])
    penalty = K1()(given, given.log_prob.detach() - 0.5, None)
    close(penalty, [[0.5, 0.5]])
    close(gradient(penalty, given), [[1.0, 1.0]])
