"""No penalty."""

from __future__ import annotations

from tests.objective.small import close, member_ratios

from groupwise.objective.divergence import NoDivergence


def test_is_zero_and_needs_nothing() -> None:
    decisions = member_ratios([2.0, 1.0])
    close(NoDivergence()(decisions, decisions.log_prob, None), [[0.0, 0.0]])
    assert not NoDivergence().beta.may_be_positive()
