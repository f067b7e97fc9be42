"""|lp - lp_ref|."""

from __future__ import annotations

from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.divergence import Absolute


def test_value_and_gradient() -> None:
    decisions = member_ratios([2.0, 1.0])
    penalty = Absolute()(decisions, decisions.log_prob.detach() + decisions.log_prob.new_tensor([[-0.5, 2.0]]), None)
    close(penalty, [[0.5, 2.0]])
    close(gradient(penalty, decisions), [[1.0, -1.0]])
