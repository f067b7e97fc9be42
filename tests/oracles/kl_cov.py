"""KL-Cov, arXiv 2505.22617, equations 12 and 13 and its code: no clip; the decisions of highest covariance pay
coefficient |lp - lp_old|.

L = -1/N sum_bt (r A - 1[top] coefficient |lp - lp_old|), top the max(1, int(share N)) largest (A - mean A) (lp - mean
lp).
"""

from __future__ import annotations

from tests.oracles.common import Given, Hand, covariances, decisions, num_decisions, z_score, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, share: float = 0.0002, coefficient: float = 1.0) -> Tensor:
    """The penalty does not depend on the advantage."""
    advantages = z_score(given)
    spread = covariances(log_prob, given, advantages)
    top = sorted(spread, key=lambda place: -spread[place])[: max(1, int(share * num_decisions(given)))]
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        for t in decisions(given, b):
            gap = log_prob[b, t] - given.old_log_prob[b, t]
            total = total - gap.exp() * advantage + (coefficient * gap.abs() if (b, t) in top else 0.0)
    return total / num_decisions(given)


# The largest covariance is 0.8097568, of member 0's second decision (see clip_cov). S = -1.5 - 0.5 - 0.6931472 + 1.1 +
# 1.5 + 0.5 = 0.4068528, over 8. Gradients: 1.5 / 8; on the second 0.5 / 8 - 1 / 8, since |d| falls as lp rises there;
# -1.1 / 8, -1.5 / 8, -0.5 / 8.
HAND = Hand(-0.05085660243, [[0.1875, -0.0625, 0.0], [0.0] * 3, [-0.1375, -0.1875, -0.0625], [0.0] * 3, [0.0] * 3])
