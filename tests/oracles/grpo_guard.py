"""GRPO-Guard, arXiv 2510.22319, equations 8 (RatioNorm) and 12 (reweighting), on Flow-GRPO.

log rho = sigma sqrt(dt) (log r + |mu - mu_old|^2 / (2 sigma^2 dt)); clipped surrogate times 1 / dt. Advantages as in
Flow-GRPO, no KL.
"""

from __future__ import annotations

import torch
from tests.oracles.common import Given, Hand, clipped, decisions, zero
from tests.oracles.flow_grpo import advantages_of
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, clip: float = 2e-6) -> Tensor:
    """Mean over a member's transitions, then over members."""
    assert given.noise is not None
    assert given.drift is not None
    assert given.step_size is not None
    advantages = advantages_of(given)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        for t in positions:
            ratio = torch.exp(given.noise[b, t] * (log_prob[b, t] - given.old_log_prob[b, t] + given.drift[b, t]))
            total = total - clipped(ratio, advantage, clip, clip) / given.step_size[b, t] / len(positions)
    return total / len(advantages)


# rho = r^2 with sigma sqrt(dt) = 2, and 1 where the drift is ln 2. Member 0 (A = -1.5811388, dt 1/2): 2.25 and 1, S = 2
# * 1.625 A; member 2 (A = 1.5811388, dt 1/4): 1.21 and 2.25 held at 1.000002, 0.25 alive, S = 4 * 0.7500013 A. Loss
# -1.5811388 (3.0000053 - 3.25) / 5. Gradients -2 rho A / (dt 5 n): 2 * 2.25 * 1.5811388 * 2 / 10, 2 * 1.5811388 * 2 /
# 10, -2 * 0.25 * 1.5811388 * 4 / 15.
HAND = Hand(
    0.07905525496,
    [[1.423024947, 0.6324555320, 0.0], [0.0] * 3, [0.0, 0.0, -0.2108185107], [0.0] * 3, [0.0] * 3],
)
