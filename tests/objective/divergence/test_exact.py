"""What the domain computed."""

from __future__ import annotations

from tests.objective.small import close, member_ratios

from groupwise.objective.divergence import Exact


def test_passes_the_domains_value_through() -> None:
    decisions = member_ratios([2.0, 1.0])
    exact = decisions.log_prob * 3
    close(Exact()(decisions, decisions.log_prob, exact), exact.detach().tolist())
