"""Every innovation that excludes no other, at token level: EMA (2.1), gradient-adaptive (2.2), decay (2.5), asymmetric
(2.6).

The two credits multiply and the product is scaled back to mean one over the member's decisions. Token mean.
"""

from __future__ import annotations

from tests.oracles.common import (
    Given,
    Hand,
    asymmetric_clipped,
    decay_credit,
    ema,
    gradient_signal,
    mean_one,
    num_decisions,
    ratios_of,
    softmax_credit,
    z_score,
    zero,
)
from torch import Tensor


def loss(
    log_prob: Tensor,
    given: Given,
    *,
    beta: float = 0.9,
    temperature: float = 1.0,
    gamma: float = 0.95,
    eps_pos: float = 0.3,
    eps_neg: float = 0.1,
) -> Tensor:
    """Smooth, clip by the sign of the advantage, weigh by the renormalised product of both credits."""
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        smoothed = ema(ratios_of(log_prob, given, b), beta)
        if not smoothed:
            continue
        adaptive = softmax_credit(gradient_signal(log_prob, given, b), temperature)
        credit = mean_one([a * d for a, d in zip(adaptive, decay_credit(len(smoothed), gamma), strict=True)])
        for weight, ratio in zip(credit, smoothed, strict=True):
            total = total - weight * asymmetric_clipped(ratio, advantage, eps_pos, eps_neg)
    return total / num_decisions(given)


# gamma 0.5. Member 0: 0.5 * 1.3333333 : 1.5 * 0.6666667 = 2 : 3, c = 0.8, 1.2: 0.8 * -1.5 + 1.2 * -0.9 = -2.28.
# Member 2: 1/1.1 : 0.5/1.5 : 0.25/0.5 = 0.9090909, 0.3333333, 0.5 of 1.7424242: c = 1.5652174, 0.5739130, 0.8608696:
# 1.7217391 + 0.5739130 * 1.3 + 0.8608696 * 0.596 = 2.9809043. Sum 0.7009043, N = 8. Gradient of member 2:
# 1.7217391 + 0.8608696 * 0.011, 0.8608696 * 0.135, 0.8608696 * 0.45, each over -8.
HAND = Hand(
    -0.08761304348,
    [[0.15, 0.0, 0.0], [0.0] * 3, [-0.2164010870, -0.01452717391, -0.04842391304], [0.0] * 3, [0.0] * 3],
    {"gamma": 0.5},
)
