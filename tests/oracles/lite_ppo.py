"""Lite PPO, arXiv 2508.08221, sections 4 and 5: the group's mean, the batch's standard deviation, a token mean, PPO's
loss without a KL.

A_i = (R_i - mean_group) / std_batch(R), the unbiased standard deviation of all rewards.
"""

from __future__ import annotations

from tests.oracles.common import Given, Hand, deviation, group_mean, token_clip
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    """A flat group has R = mean."""
    std = deviation(given.rewards)
    return token_clip(
        log_prob,
        given,
        [(reward - group_mean(given, b)) / std for b, reward in enumerate(given.rewards)],
        clip_low,
        clip_high,
    )


# Rewards 0, 1, 2, 1, 1: std sqrt(2 / 4) = 0.7071068, A = -+1.4142136. As BNPO with A = -+1 (sum of surrogates 0.5,
# gradients 0.1875, -0.1375, -0.0625), times 1.4142136.
HAND = Hand(
    -0.08838834765, [[0.2651650429, 0.0, 0.0], [0.0] * 3, [-0.1944543648, 0.0, -0.08838834765], [0.0] * 3, [0.0] * 3]
)
