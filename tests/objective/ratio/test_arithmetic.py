"""AMIC's ratio: the arithmetic mean over a member's decisions."""

from __future__ import annotations

import pytest
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.ratio import Arithmetic
from groupwise.statistics import finish


def test_arithmetic_mean_gives_each_decision_its_share_of_the_gradient() -> None:
    # (4 + 1) / 2 = 2.5; d rho / d lp_t = r_t / 2, over both copies r_t.
    decisions = member_ratios([4.0, 1.0, None], [None, None, None])
    level = Arithmetic()(decisions.log_ratio, decisions).exp()
    close(decisions.masked(level, fill=1.0), [[2.5, 2.5, 1.0], [1.0, 1.0, 1.0]])
    close(gradient(level, decisions), [[4.0, 1.0, 0.0], [0.0, 0.0, 0.0]])


def test_token_gradient_drops_the_weighting_by_the_ratio() -> None:
    decisions = member_ratios([4.0, 1.0])
    close(gradient(Arithmetic(gradient="token")(decisions.log_ratio, decisions).exp(), decisions), [[2.5, 2.5]])


def test_metrics_are_over_members_with_a_decision() -> None:
    # Member ratios 2.5 and 1.5: variance 0.25; lengths 2 and 1; the empty member does not count.
    decisions = member_ratios([4.0, 1.0], [1.5], [None, None])
    numbers = finish(Arithmetic().measure(Arithmetic()(decisions.log_ratio, decisions), decisions))
    assert numbers == pytest.approx({"amic/sequence_weights_variance": 0.25, "amic/avg_sequence_length": 1.5})
