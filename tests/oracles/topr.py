"""TOPR, arXiv 2503.14286, equations 8 and 9: good trajectories with weight one, bad ones with the truncated importance
ratio [pi / mu]_0^1.

gradient = E_mu[ sum_{R >= 0} R grad log pi(tau) + sum_{R < 0} min(pi / mu, 1) R grad log pi(tau) ], tau a whole member,
R less a baseline.
"""

from __future__ import annotations

import math

from tests.oracles.common import Given, Hand, decisions, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, baseline: float = 0.0) -> Tensor:
    """Mean over members of sums over decisions; groups play no part."""
    total = zero(log_prob)
    for b, reward in enumerate(given.rewards):
        positions = decisions(given, b)
        gap = math.fsum(float(log_prob[b, t].detach() - given.old_log_prob[b, t]) for t in positions)
        weight = 1.0 if reward >= baseline else min(math.exp(gap), 1.0)
        for t in positions:
            total = total - weight * (reward - baseline) * log_prob[b, t]
    return total / len(given.group)


# Baseline 1: A = -1, 0, 1, 0, 0. Member 0: ratio 0.75, S = 0.75 * 2.2876821 = 1.7157616; member 2: weight 1, S =
# -3.1923719. Loss (3.1923719 - 1.7157616) / 5; gradients 0.75 / 5, -1 / 5.
HAND = Hand(0.2953220677, [[0.15, 0.15, 0.0], [0.0] * 3, [-0.2] * 3, [0.0] * 3, [0.0] * 3], {"baseline": 1.0})
