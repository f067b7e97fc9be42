"""The original project's conservative combination: EMA smoothing (2.1) and temporal decay (2.5).

On PPO's clip at 0.2 with a token mean; the decay multiplies the surrogate, not the ratio.
"""

from __future__ import annotations

from tests.oracles.common import Given, Hand, clipped, decay_credit, ema, num_decisions, ratios_of, z_score, zero
from torch import Tensor


def loss(
    log_prob: Tensor,
    given: Given,
    *,
    beta: float = 0.9,
    gamma: float = 0.95,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Tensor:
    """Smooth the ratio, clip it, then weigh the surrogate."""
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        smoothed = ema(ratios_of(log_prob, given, b), beta)
        for weight, ratio in zip(decay_credit(len(smoothed), gamma), smoothed, strict=True):
            total = total - weight * clipped(ratio, advantage, clip_low, clip_high)
    return total / num_decisions(given)


# Smoothed ratios of ema.py (1.5, 0.6; 1.1, 1.46, 0.596), credits of temporal_decay.py at gamma 0.5.
# Member 0: -2 - 0.5333333. Member 2: 1.8857143 + 1.0285714 + 0.4285714 * 0.596 = 3.1697143. Sum 0.6363810, N = 8.
# Gradient of member 2: 1.8857143 + 0.4285714 * 0.011, 0.4285714 * 0.135, 0.4285714 * 0.45, each over -8.
HAND = Hand(
    -0.07954761905,
    [[0.25, 0.0, 0.0], [0.0] * 3, [-0.2363035714, -0.007232142857, -0.02410714286], [0.0] * 3, [0.0] * 3],
    {"gamma": 0.5},
)
