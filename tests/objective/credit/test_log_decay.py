"""Credit that falls with the logarithm of the position."""

from __future__ import annotations

import math

from tests.objective.small import close, member_ratios

from groupwise.objective.credit import LogDecay


def test_shares_are_powers_of_the_log_position() -> None:
    # tau 1, n = 4: ln(1 + s) / ln 4 = 0, 1/2, ln 3 / ln 4, 1; with a = 2 ln 2 the weights are 1, 1/2, 4^-(ln 3 / ln 4)
    # = 1/3, 1/4. Their sum is 25 / 12, so the credit is 48/25, 24/25, 16/25, 12/25.
    decisions = member_ratios([1.0, 1.0, 1.0, 1.0], [1.0], [None])
    close(LogDecay(a=2 * math.log(2), tau=1.0)(decisions), [[1.92, 0.96, 0.64, 0.48], [1.0, 0.0, 0.0, 0.0], [0.0] * 4])


def test_last_is_exp_minus_a_of_the_first_at_every_length() -> None:
    for n in (2, 5, 9):
        credit = LogDecay(a=2.0, tau=10.0)(member_ratios([1.0] * n))[0]
        close(credit[-1] / credit[0], math.exp(-2.0))
