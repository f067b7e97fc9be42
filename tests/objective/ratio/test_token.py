"""One ratio a decision."""

from __future__ import annotations

from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.ratio import Token


def test_each_decision_keeps_its_ratio_and_gradient() -> None:
    decisions = member_ratios([2.0, 0.5])
    level = Token()(decisions.log_ratio, decisions).exp()
    close(level, [[2.0, 0.5]])
    close(gradient(level, decisions), [[2.0, 0.5]])
