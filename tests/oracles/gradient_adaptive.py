"""Innovation 2.2 of the original project: credit c_t = n softmax_t(g_t / T), outside the trust region.

g is the exact norm of the score with respect to the logits where given, the surprisal |lp| otherwise; detached either
way. Surrogate and aggregation are PPO's clip at 0.2 and a token mean.
"""

from __future__ import annotations

from tests.oracles.common import (
    Given,
    Hand,
    clipped,
    gradient_signal,
    num_decisions,
    ratios_of,
    softmax_credit,
    z_score,
    zero,
)
from torch import Tensor


def loss(
    log_prob: Tensor, given: Given, *, temperature: float = 1.0, clip_low: float = 0.2, clip_high: float = 0.2
) -> Tensor:
    """Mean one over a member's decisions, so a member of one decision has credit 1."""
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        if not given.mask[b].any():
            continue
        credit = softmax_credit(gradient_signal(log_prob, given, b), temperature)
        for weight, ratio in zip(credit, ratios_of(log_prob, given, b), strict=True):
            total = total - weight * clipped(ratio, advantage, clip_low, clip_high)
    return total / num_decisions(given)


# exp(|lp|) = e / r, so the softmax is proportional to 1 / r. Member 0: 1/1.5 : 1/0.5 = 1 : 3, c = 0.5, 1.5.
# Member 2: 0.9090909, 0.6666667, 2 of 3.5757576, times 3: c = 0.7627119, 0.5593220, 1.6779661.
# 0.5 * -1.5 + 1.5 * -0.8 = -1.95; 0.7627119 * 1.1 + 0.5593220 * 1.2 + 1.6779661 * 0.5 = 2.3491525. Sum 0.3991525, N =
# 8.
HAND = Hand(-0.04989406780, [[0.09375, 0.0, 0.0], [0.0] * 3, [-0.1048728814, 0.0, -0.1048728814], [0.0] * 3, [0.0] * 3])
