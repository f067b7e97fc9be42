"""VESPO, arXiv 2602.10693, section 3.4: L = -E[ sg(phi(W)) A log pi ], phi(W) = W^k exp(lambda (1 - W)), W = pi(y) /
mu(y) of the whole member.

(k, lambda) = (2, 3) where A >= 0 and (3, 2) elsewhere; ln W clamped to +-20, as its code. Its runs: z-scores and a mean
over all decisions.
"""

from __future__ import annotations

import math

from tests.oracles.common import Given, Hand, decisions, num_decisions, z_score, zero
from torch import Tensor


def loss(
    log_prob: Tensor,
    given: Given,
    *,
    k_pos: float = 2.0,
    lambda_pos: float = 3.0,
    k_neg: float = 3.0,
    lambda_neg: float = 2.0,
    limit: float = 20.0,
) -> Tensor:
    """The weight is a constant; every decision of a member carries it."""
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        positions = decisions(given, b)
        gap = math.fsum(float(log_prob[b, t].detach() - given.old_log_prob[b, t]) for t in positions)
        gap = min(max(gap, -limit), limit)
        k, decay = (k_pos, lambda_pos) if advantage >= 0 else (k_neg, lambda_neg)
        weight = math.exp(k * gap + decay * (1.0 - math.exp(gap)))
        for t in positions:
            total = total - weight * advantage * log_prob[b, t]
    return total / num_decisions(given)


# Member 0 (A = -1): W = 0.75, ln phi = 3 ln 0.75 + 2 * 0.25 = -0.3630462, phi = 0.6955543, S = 0.6955543 * 2.2876821 =
# 1.5912071. Member 2 (A = 1): W = 0.825, ln phi = 2 ln 0.825 + 3 * 0.175 = 0.1402562, phi = 1.1505686, S = -1.1505686 *
# 3.1923719 = -3.6730427. Loss (3.6730427 - 1.5912071) / 8; gradients 0.6955543 / 8, -1.1505686 / 8.
HAND = Hand(0.2602294551, [[0.08694428576, 0.08694428576, 0.0], [0.0] * 3, [-0.1438210692] * 3, [0.0] * 3, [0.0] * 3])
