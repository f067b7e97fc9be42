"""Dr. GRPO, arXiv 2503.20783, section 3.2: no division by the group's std, none by the member's length.

The code of the paper divides the masked sum of each member by a constant, the generation budget L: 1 / (B L).
"""

from __future__ import annotations

import math

from tests.oracles.common import Given, Hand, clipped, group_of, is_flat, ratios_of, zero
from torch import Tensor


def loss(
    log_prob: Tensor, given: Given, *, length: float = 1024.0, clip_low: float = 0.2, clip_high: float = 0.2
) -> Tensor:
    """A = R - mean(R); the divisor B L counts every member."""
    num_members = len(given.group)
    total = zero(log_prob)
    for b in range(num_members):
        group = group_of(given, b)
        advantage = (
            0.0 if is_flat(given, b) else given.rewards[b] - math.fsum(given.rewards[i] for i in group) / len(group)
        )
        for ratio in ratios_of(log_prob, given, b):
            total = total - clipped(ratio, advantage, clip_low, clip_high)
    return total / (num_members * length)


# A = -1, 0, 1. Surrogates -1.5, -0.8 (dead); 1.1, 1.2 (dead), 0.5: sum 0.5. With L = 4: -0.5 / 20.
HAND = Hand(-0.025, [[0.075, 0.0, 0.0], [0.0] * 3, [-0.055, 0.0, -0.025], [0.0] * 3, [0.0] * 3], {"length": 4})
