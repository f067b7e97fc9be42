"""MaxRL, arXiv 2602.02710, section 3, and its code: A_i = (R_i - mean) / mean of the group, whose mean gradient is that
of log success; clip, token mean.

Rewards are not negative; a group without success has advantage 0.
"""

from __future__ import annotations

from tests.oracles.common import Given, Hand, group_mean, is_flat, token_clip
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    """Without a small number in the divisor."""
    assert min(given.rewards) >= 0
    means = [group_mean(given, b) for b in range(len(given.group))]
    advantages = [
        0.0 if is_flat(given, b) else (reward - means[b]) / means[b] for b, reward in enumerate(given.rewards)
    ]
    return token_clip(log_prob, given, advantages, clip_low, clip_high)


# Group means 1 and 1: A = -1, 0, 1, 0, 0, as BNPO.
HAND = Hand(-0.0625, [[0.1875, 0.0, 0.0], [0.0] * 3, [-0.1375, 0.0, -0.0625], [0.0] * 3, [0.0] * 3])
