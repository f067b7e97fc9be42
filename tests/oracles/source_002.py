"""Source 002 on DDPO's code (arXiv 2305.13301): the group's mean, the tracker's standard deviation, clip 0.2, KL to the
reference at 0.04.

Without a past of at least 16 rewards a prompt takes the population's standard deviation of the batch. Mean over a
member's transitions, then over members.
"""

from __future__ import annotations

import torch
from tests.oracles.common import Given, Hand, clipped, decisions, deviation, group_mean, ratios_of, zero
from torch import Tensor


def advantages_of(given: Given) -> list[float]:
    """One a member, clipped at 5."""
    std = deviation(given.rewards, ddof=0)
    return [min(max((reward - group_mean(given, b)) / std, -5.0), 5.0) for b, reward in enumerate(given.rewards)]


def loss(log_prob: Tensor, given: Given, *, clip: float = 0.2, beta: float = 0.04) -> Tensor:
    """`exact_divergence` is |mu - mu_ref|^2 / (2 sigma^2) of a transition."""
    assert given.exact_divergence is not None
    advantages = advantages_of(given)
    total = zero(log_prob) + torch.zeros_like(given.exact_divergence).sum()
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        for t, ratio in zip(positions, ratios_of(log_prob, given, b), strict=True):
            total = total - (clipped(ratio, advantage, clip, clip) - beta * given.exact_divergence[b, t]) / len(
                positions
            )
    return total / len(advantages)


# Rewards 0, 1, 2, 1, 1: std sqrt(2 / 5) = 0.6324555, A = -+1.5811388. Member 0: 1.5 A and 0.8 A (dead), mean 1.15;
# member 2: 1.1, 1.2 (dead) and 0.5, mean
# 2.8 / 3. Loss 1.5811388 (1.15 - 2.8 / 3) / 5 = 0.0685160; KL 0.04 * 0.25 = 0.01. Gradients 1.5 * 1.5811388 / 10, -1.1
# * 1.5811388 / 15, -0.5 * 1.5811388 / 15; by the divergence 0.04 / (5 n).
HAND = Hand(
    0.07851601597,
    [[0.2371708245, 0.0, 0.0], [0.0] * 3, [-0.1159501809, 0.0, -0.05270462767], [0.0] * 3, [0.0] * 3],
    exact_gradient=[[0.004, 0.004, 0.0], [0.008, 0.0, 0.0], [0.04 / 15] * 3, [0.008, 0.0, 0.0], [0.008, 0.0, 0.0]],
)
