"""|lp - lp_ref|."""

from __future__ import annotations

from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.divergence.absolute import Absolute


def test_value_and_gradient() -> None:
    given = member_ratios([2.0, 1.0])
    penalty = Absolute()(given, given.log_prob.detach() + given.log_prob.new_tensor([[-0.5, 2.0]]), None)
    close(penalty, [[0.5, 2.0]])
    close(gradient(penalty, given), [[1.0, -1.0]])
