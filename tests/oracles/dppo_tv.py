"""DPPO with a binary total-variation mask, arXiv 2602.04879, section 4; its authors' code (Stable-RL) for the
truncation.

L = -1/N sum_bt M sg(min(pi / mu, c)) A lp, mu the sampler's probability. M = 0 where A > 0 and pi - mu > delta, and
where A < 0 and pi - mu < -delta. A = R - mean(R) inside the group (the runs of the paper switch the division by the
standard deviation off).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tests.oracles.common import Given, Hand, decisions, group_mean, num_decisions, zero
from torch import Tensor


def masked_loss(log_prob: Tensor, given: Given, beyond: Callable[[float, float], bool], maximum: float) -> Tensor:
    """`beyond(mu, pi)` says whether the divergence exceeds its threshold."""
    sampler = given.old_log_prob if given.behaviour_log_prob is None else given.behaviour_log_prob
    total = zero(log_prob)
    for b, reward in enumerate(given.rewards):
        advantage = reward - group_mean(given, b)
        for t in decisions(given, b):
            pi, mu = (math.exp(float(value[b, t].detach())) for value in (log_prob, sampler))
            if beyond(mu, pi) and ((advantage > 0 and pi > mu) or (advantage < 0 and pi < mu)):
                continue
            total = total - min(pi / mu, maximum) * advantage * log_prob[b, t]
    return total / num_decisions(given)


def loss(log_prob: Tensor, given: Given, *, threshold: float = 0.15, maximum: float = 20.0) -> Tensor:
    """Masked decisions stay in the divisor."""
    return masked_loss(log_prob, given, lambda mu, pi: abs(pi - mu) > threshold, maximum)


# mu = 1/e = 0.3678794; pi at the ratios 1.1, 1.5, 0.5: 0.4046674, 0.5518192, 0.1839397, so |pi - mu| = 0.0367879,
# 0.1839397, 0.1839397. Member 0 (A = -1): 1.5 grew, weight 1.5; 0.5 fell beyond .15, masked. Member 2 (A = 1): 1.1; 1.5
# masked; 0.5 fell, weight 0.5. S = 1.5 * 0.5945349 - 1.1 * 0.9046898 - 0.5 * 1.6931472 = -0.9499301; loss 0.9499301 /
# 8. Gradients -weight A / 8.
HAND = Hand(0.1187412568, [[0.1875, 0.0, 0.0], [0.0] * 3, [-0.1375, 0.0, -0.0625], [0.0] * 3, [0.0] * 3])
