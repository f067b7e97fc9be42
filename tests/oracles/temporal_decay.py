"""Innovation 2.5 of the original project: credit c_t proportional to gamma^(t-1), mean one, outside the trust region.

Surrogate and aggregation are PPO's clip at 0.2 and a token mean.
"""

from __future__ import annotations

from tests.oracles.common import Given, Hand, clipped, decay_credit, num_decisions, ratios_of, z_score, zero
from torch import Tensor


def loss(
    log_prob: Tensor, given: Given, *, gamma: float = 0.95, clip_low: float = 0.2, clip_high: float = 0.2
) -> Tensor:
    """t counts valid decisions, not positions: holes in the mask do not decay."""
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        ratios = ratios_of(log_prob, given, b)
        for weight, ratio in zip(decay_credit(len(ratios), gamma), ratios, strict=True):
            total = total - weight * clipped(ratio, advantage, clip_low, clip_high)
    return total / num_decisions(given)


# gamma 0.5. Member 0: (1, 0.5) * 2 / 1.5 = 1.3333333, 0.6666667: -2 - 0.5333333 = -2.5333333. Member 2:
# (1, 0.5, 0.25) * 3 / 1.75 = 1.7142857, 0.8571429, 0.4285714: 1.8857143 + 1.0285714 + 0.2142857 = 3.1285714.
# Sum 0.5952381, N = 8. Gradients: 2 / 8, -1.8857143 / 8, -0.2142857 / 8.
HAND = Hand(
    -0.07440476190,
    [[0.25, 0.0, 0.0], [0.0] * 3, [-0.2357142857, 0.0, -0.02678571429], [0.0] * 3, [0.0] * 3],
    {"gamma": 0.5},
)
