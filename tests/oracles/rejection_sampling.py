"""Rejection sampling: cross-entropy on the members that the reward accepts; after RAFT, arXiv 2304.06767, algorithm 1,
without its ranking.

loss = -1/N sum_b 1[R_b > threshold] sum_t lp_t, N all decisions sampled (RAFT averages over the accepted ones: another
scale).
"""

from __future__ import annotations

from tests.oracles.common import Given, Hand, decisions, num_decisions, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, threshold: float = 0.5) -> Tensor:
    """Groups play no part."""
    total = zero(log_prob)
    for b, reward in enumerate(given.rewards):
        if reward > threshold:
            for t in decisions(given, b):
                total = total - log_prob[b, t]
    return total / num_decisions(given)


# Accepted: members 1 to 4 with lp sums -0.3068528, -3.1923719, -1, -1: loss 5.4992247 / 8.
HAND = Hand(0.6874030890, [[0.0] * 3, [-0.125, 0.0, 0.0], [-0.125] * 3, [-0.125, 0.0, 0.0], [-0.125, 0.0, 0.0]])
