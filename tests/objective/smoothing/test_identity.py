"""No smoothing leaves the log-ratio as it is."""

from __future__ import annotations

from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.ratio import Identity


def test_the_ratio_and_its_gradient_pass_through() -> None:
    decisions = member_ratios([2.0, None, 0.5])
    smoothed = Identity()(decisions)
    close(smoothed.exp(), [[2.0, 1.0, 0.5]])
    close(gradient(smoothed, decisions), [[1.0, 0.0, 1.0]])
    assert Identity().measure(decisions, smoothed) == {}
