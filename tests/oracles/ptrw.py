"""Innovation 2.4 of the original project: a Gaussian gate instead of a clip, S = sg(exp(-(r - 1)^2 / (2 sigma^2))) r A.

The gate is detached: differentiated, it would reinforce bad decisions whose ratio exceeds 1.04. Token level, token
mean.
"""

from __future__ import annotations

import math

from tests.oracles.common import Given, Hand, num_decisions, ratios_of, z_score, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, sigma: float = 0.2) -> Tensor:
    """Not pessimistic: far from ratio 1 a decision of either sign falls silent."""
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        for ratio in ratios_of(log_prob, given, b):
            gate = math.exp(-((float(ratio.detach()) - 1.0) ** 2) / (2.0 * sigma**2))
            total = total - gate * ratio * advantage
    return total / num_decisions(given)


# Gates: |r - 1| = 0.5: exp(-0.25 / 0.08) = 0.0439369; 0.1: exp(-0.125) = 0.8824969. Member 0: -0.0659054, -0.0219685;
# member 2: 0.9707466, 0.0659054, 0.0219685. Sum 0.9707466, N = 8; each gradient is minus its S over 8.
HAND = Hand(
    -0.1213433241,
    [
        [0.008238175054, 0.002746058351, 0.0],
        [0.0] * 3,
        [-0.1213433241, -0.008238175054, -0.002746058351],
        [0.0] * 3,
        [0.0] * 3,
    ],
)
