"""Dual-clip PPO, arXiv 1912.09729, equation 5, with group z-scores and a token mean: verl's vanilla policy loss.

A < 0: max(min(r A, clip(r) A), c A) with c > 1; otherwise the clipped surrogate.
"""

from __future__ import annotations

from tests.oracles.common import Given, Hand, dual_clipped, num_decisions, ratios_of, z_score, zero
from torch import Tensor


def loss(
    log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2, bound: float = 3.0
) -> Tensor:
    """A bad decision whose ratio exceeds ``bound`` carries no gradient."""
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        for ratio in ratios_of(log_prob, given, b):
            total = total - dual_clipped(ratio, advantage, clip_low, clip_high, bound)
    return total / num_decisions(given)


# c = 1.3: member 0: max(-1.5, -1.3) = -1.3 (dead), -0.8 (dead); member 2: 1.1, 1.2 (dead), 0.5. Sum 0.7, N = 8.
HAND = Hand(-0.0875, [[0.0] * 3, [0.0] * 3, [-0.1375, 0.0, -0.0625], [0.0] * 3, [0.0] * 3], {"bound": 1.3})
