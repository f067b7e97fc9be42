"""Innovation 2.3 of the original project: rho = (1/n) sum_t r_t for every decision of the member, differentiated.

Surrogate and aggregation are PPO's clip at 0.2 and a token mean.
"""

from __future__ import annotations

import torch
from tests.oracles.common import Given, Hand, clipped, decisions, num_decisions, ratios_of, z_score, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    """All n decisions of a member share one surrogate; the token mean counts it n times."""
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        n = len(decisions(given, b))
        if n == 0:
            continue
        rho = torch.stack(ratios_of(log_prob, given, b)).sum() / n
        for _ in range(n):
            total = total - clipped(rho, advantage, clip_low, clip_high)
    return total / num_decisions(given)


# Member 0: rho = (1.5 + 0.5) / 2 = 1, S = -1 twice. Member 2: rho = 3.1 / 3, S = 1.0333333 three times. Sum 1.1, N = 8.
# d rho / d lp_t = r_t / n, times n copies: gradients r_t / 8 and -r_t / 8.
HAND = Hand(-0.1375, [[0.1875, 0.0625, 0.0], [0.0] * 3, [-0.1375, -0.1875, -0.0625], [0.0] * 3, [0.0] * 3])
