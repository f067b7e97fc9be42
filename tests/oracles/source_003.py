"""Source 003: GRPO with z-scores of ddof 0, clip 0.2, k3 KL to the reference at 0.1 and an entropy bonus of 0.01.

J = 1/G sum_i min(r_i A_i, clip(r_i, 1 - eps, 1 + eps) A_i) - beta KL(pi || pi_ref) + coefficient H, the ratio per token
and the token terms averaged as in GRPO (arXiv 2402.03300, equation 3). The source adds 1e-8 to the std; here the std is
exact.
"""

from __future__ import annotations

import torch
from tests.oracles.common import Given, Hand, clipped, decisions, ratios_of, z_score, zero
from torch import Tensor


def loss(
    log_prob: Tensor,
    given: Given,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    beta: float = 0.1,
    entropy_coefficient: float = 0.01,
    ddof: int = 0,
) -> Tensor:
    """Divergence and entropy use the aggregation weights 1 / (B n_b) as they are."""
    assert given.reference_log_prob is not None
    assert given.entropy is not None
    advantages = z_score(given, ddof)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        for t, ratio in zip(positions, ratios_of(log_prob, given, b), strict=True):
            gap = given.reference_log_prob[b, t] - log_prob[b, t]
            kl = torch.exp(gap) - gap - 1.0
            term = (
                clipped(ratio, advantage, clip_low, clip_high) - beta * kl + entropy_coefficient * given.entropy[b, t]
            )
            total = total - term / len(positions)
    return total / len(advantages)


# A = -1.2247449, 0, 1.2247449 (biased std sqrt(2/3)). As GRPO: 0.0433333 * 1.2247449 = 0.0530723; KL 0.1 * 0.3068528 /
# 10 = 0.0030685; entropy 0.01 * 0.5 = 0.005 off. Gradients 0.15 * 1.2247449 - 0.1 / 10; -1.1 * 1.2247449 / 15; -0.5 *
# 1.2247449 / 15. By entropy: -0.01 / (5 n_b).
HAND = Hand(
    0.05114080595,
    [[0.1737117307, 0.0, 0.0], [0.0] * 3, [-0.08981462390, 0.0, -0.04082482905], [0.0] * 3, [0.0] * 3],
    entropy_gradient=[
        [-0.001, -0.001, 0.0],
        [-0.002, 0.0, 0.0],
        [-0.0006666666667, -0.0006666666667, -0.0006666666667],
        [-0.002, 0.0, 0.0],
        [-0.002, 0.0, 0.0],
    ],
)
