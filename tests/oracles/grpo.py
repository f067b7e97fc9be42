"""GRPO, arXiv 2402.03300, equations 3 (objective) and 4 (the k3 estimator of the KL to the reference).

J = 1/G sum_i 1/|o_i| sum_t [ min(r_t A, clip(r_t, 1 - eps, 1 + eps) A) - beta (exp(lp_ref - lp) - (lp_ref - lp) - 1) ],
averaged over prompts; every prompt has the same number of members, so that is the mean over members.
"""

from __future__ import annotations

import torch
from tests.oracles.common import Given, Hand, clipped, decisions, ratios_of, z_score, zero
from torch import Tensor


def loss(
    log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2, beta: float = 0.04, ddof: int = 1
) -> Tensor:
    """Member mean of decision means; a member without decisions adds nothing and still counts in B."""
    assert given.reference_log_prob is not None
    advantages = z_score(given, ddof)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        for t, ratio in zip(positions, ratios_of(log_prob, given, b), strict=True):
            surrogate = clipped(ratio, advantage, clip_low, clip_high)
            gap = given.reference_log_prob[b, t] - log_prob[b, t]
            kl = torch.exp(gap) - gap - 1.0
            total = total - (surrogate - beta * kl) / len(positions)
    return total / len(advantages)


# Surrogates: member 0 (A = -1) min(-1.5, -1.2) = -1.5 and min(-0.5, -0.8) = -0.8 (dead), mean -1.15; member 2 (A = 1)
# 1.1, 1.2 (dead), 0.5, mean 2.8 / 3. Sum -0.2166667, over B = 5 and negated: 0.0433333. KL on one decision only:
# 2 - ln 2 - 1 = 0.3068528, times 0.04 / (2 * 5) = 0.0012274. Gradients: 1.5 / 10 + 0.04 (1 - 2) / 10 = 0.146,
# -1.1 / 15, -0.5 / 15.
HAND = Hand(
    0.04456074461, [[0.146, 0.0, 0.0], [0.0, 0.0, 0.0], [-0.07333333333, 0.0, -0.03333333333], [0.0] * 3, [0.0] * 3]
)
