"""r (exp(x) - x - 1): k3 weighted by the ratio."""

from __future__ import annotations

import math

from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.divergence.k3_unbiased import K3Unbiased


def test_value_and_gradient() -> None:
    # x = ln 2, r = 3: 3 (1 - ln 2); d/dlp of r k3 = r k3 + r (1 - e^x) = 3 (1 - ln 2) - 3.
    given = member_ratios([3.0])
    gap = math.log(2.0)
    penalty = K3Unbiased()(given, given.log_prob.detach() + gap, None)
    close(penalty, [[3 * (1 - gap)]])
    close(gradient(penalty, given), [[-3 * gap]])


def test_clamped_in_log_space() -> None:
    given = member_ratios([math.exp(60.0)], old=-70.0)
    penalty = K3Unbiased()(given, given.log_prob.detach() + 60.0, None)
    close(penalty / math.exp(80.0), [[1.0 - 61 * math.exp(-20.0)]])
