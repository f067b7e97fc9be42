"""Innovation 2.6 of the original project, with the minimum: eps = eps_pos where A > 0, eps_neg elsewhere, on both
sides.

S = min(r A, clip(r, 1 - eps, 1 + eps) A). Only the upper bound acts for A > 0 and only the lower for A < 0, so this is
the plain clip with low = eps_neg and high = eps_pos. Token mean.
"""

from __future__ import annotations

from tests.oracles.common import Given, Hand, asymmetric_clipped, num_decisions, ratios_of, z_score, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, eps_pos: float = 0.3, eps_neg: float = 0.1) -> Tensor:
    """Zero advantages contribute nothing whichever side they are counted on."""
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        for ratio in ratios_of(log_prob, given, b):
            total = total - asymmetric_clipped(ratio, advantage, eps_pos, eps_neg)
    return total / num_decisions(given)


# Member 0: min(-1.5, -1.1) = -1.5, min(-0.5, -0.9) = -0.9 (dead). Member 2: 1.1, 1.3 (dead), 0.5. Sum 0.5, N = 8.
HAND = Hand(-0.0625, [[0.1875, 0.0, 0.0], [0.0] * 3, [-0.1375, 0.0, -0.0625], [0.0] * 3, [0.0] * 3])
