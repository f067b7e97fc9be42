"""A member's ratio with each decision's own gradient."""

from __future__ import annotations

from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.decisions import token_gradient


def test_value_of_the_level_gradient_of_the_decision() -> None:
    decisions = member_ratios([4.0, 1.0])
    level = token_gradient(decisions.mean(decisions.log_ratio), decisions)
    close(level.exp(), [[2.0, 2.0]])
    close(gradient(level, decisions), [[1.0, 1.0]])
