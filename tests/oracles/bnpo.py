"""BNPO as TRL's loss type of that name: GRPO's clipped surrogate, no KL, mean over all decisions.

TRL's mean is local to the micro-batch; this one is over the update batch. Not the Beta-normalisation paper.
"""

from __future__ import annotations

from tests.oracles.common import Given, Hand, clipped, num_decisions, ratios_of, z_score, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    """Every decision weighs 1 / N, those of flat groups included."""
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        for ratio in ratios_of(log_prob, given, b):
            total = total - clipped(ratio, advantage, clip_low, clip_high)
    return total / num_decisions(given)


# Surrogates -1.5, -0.8 (dead); 1.1, 1.2 (dead), 0.5: sum 0.5; N = 8.
HAND = Hand(-0.0625, [[0.1875, 0.0, 0.0], [0.0] * 3, [-0.1375, 0.0, -0.0625], [0.0] * 3, [0.0] * 3])
