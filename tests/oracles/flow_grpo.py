"""Flow-GRPO, arXiv 2505.05470, equations 5 to 7 and 13, and its code: GRPO per denoising transition with a Gaussian KL
to the reference.

A = (R - mean_group) / std_batch, the population's standard deviation, clipped at 5 (the code's `global_std`; the
paper's is the group's). Mean over the transitions of a member, then over members.
"""

from __future__ import annotations

import torch
from tests.oracles.common import Given, Hand, clipped, decisions, deviation, group_mean, ratios_of, zero
from torch import Tensor


def advantages_of(given: Given) -> list[float]:
    """One a member."""
    std = deviation(given.rewards, ddof=0)
    return [min(max((reward - group_mean(given, b)) / std, -5.0), 5.0) for b, reward in enumerate(given.rewards)]


def loss(log_prob: Tensor, given: Given, *, clip: float = 1e-4, beta: float = 0.04) -> Tensor:
    """`exact_divergence` is |mu - mu_ref|^2 / (2 sigma^2 dt) of a transition."""
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


# Rewards 0, 1, 2, 1, 1: std sqrt(2 / 5) = 0.6324555, A = -+1.5811388. Member 0: 1.5 A and 0.9999 A (dead), mean
# 1.24995; member 2: 1.0001 twice (dead) and 0.5, mean 0.8334. Surrogates 1.5811388 (0.8334 - 1.24995) / 5 = -0.1317247,
# loss 0.1317247; KL 0.04 * 0.25 = 0.01. Gradients 1.5 * 1.5811388 / 10, -0.5 * 1.5811388 / 15; by the divergence 0.04 /
# (5 n).
HAND = Hand(
    0.1417246759,
    [[0.2371708245, 0.0, 0.0], [0.0] * 3, [0.0, 0.0, -0.05270462767], [0.0] * 3, [0.0] * 3],
    exact_gradient=[[0.004, 0.004, 0.0], [0.008, 0.0, 0.0], [0.04 / 15] * 3, [0.008, 0.0, 0.0], [0.008, 0.0, 0.0]],
)
