"""The original project's balanced combination: EMA (2.1), gradient-adaptive credit (2.2), asymmetric clip (2.6). Token
mean.
"""

from __future__ import annotations

from tests.oracles.common import (
    Given,
    Hand,
    asymmetric_clipped,
    ema,
    gradient_signal,
    num_decisions,
    ratios_of,
    softmax_credit,
    z_score,
    zero,
)
from torch import Tensor


def loss(
    log_prob: Tensor,
    given: Given,
    *,
    beta: float = 0.9,
    temperature: float = 1.0,
    eps_pos: float = 0.3,
    eps_neg: float = 0.1,
) -> Tensor:
    """Smooth, clip by the sign of the advantage, weigh."""
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        if not given.mask[b].any():
            continue
        credit = softmax_credit(gradient_signal(log_prob, given, b), temperature)
        for weight, ratio in zip(credit, ema(ratios_of(log_prob, given, b), beta), strict=True):
            total = total - weight * asymmetric_clipped(ratio, advantage, eps_pos, eps_neg)
    return total / num_decisions(given)


# Smoothed ratios of ema.py, credits of gradient_adaptive.py. Member 0: 0.5 * -1.5 + 1.5 * min(-0.6, -0.9) = -2.1.
# Member 2: 0.7627119 * 1.1 + 0.5593220 * 1.3 + 1.6779661 * 0.596 = 2.5661695. Sum 0.4661695, N = 8. Gradient of
# member 2: 0.7627119 * 1.1 + 1.6779661 * 0.011, 1.6779661 * 0.135, 1.6779661 * 0.45, each over -8.
HAND = Hand(
    -0.05827118644,
    [[0.09375, 0.0, 0.0], [0.0] * 3, [-0.1071800847, -0.02831567797, -0.09438559322], [0.0] * 3, [0.0] * 3],
)
