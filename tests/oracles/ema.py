"""Innovation 2.1 of the original project: EMA smoothing of the ratio, on PPO's clip at 0.2 with a token mean.

r'_1 = r_1, r'_t = beta r_t + (1 - beta) r'_{t-1} over the valid decisions of one member, differentiated.
"""

from __future__ import annotations

from tests.oracles.common import Given, Hand, clipped, ema, num_decisions, ratios_of, z_score, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, beta: float = 0.9, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    """The smoothed ratio goes where the ratio went."""
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        for ratio in ema(ratios_of(log_prob, given, b), beta):
            total = total - clipped(ratio, advantage, clip_low, clip_high)
    return total / num_decisions(given)


# Member 0: 1.5, 0.9 * 0.5 + 0.1 * 1.5 = 0.6: S = -1.5, -0.8 (dead). Member 2: 1.1, 0.9 * 1.5 + 0.11 = 1.46,
# 0.9 * 0.5 + 0.146 = 0.596: S = 1.1, 1.2 (dead), 0.596. Sum 0.596, N = 8. Gradient of member 2:
# 1.1 + 0.1 * 0.1 * 1.1 = 1.111, 0.1 * 0.9 * 1.5 = 0.135, 0.9 * 0.5 = 0.45, each over -8.
HAND = Hand(-0.0745, [[0.1875, 0.0, 0.0], [0.0] * 3, [-0.138875, -0.016875, -0.05625], [0.0] * 3, [0.0] * 3])
