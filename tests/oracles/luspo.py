"""LUSPO, arXiv 2602.05261: GSPO with each member's surrogate multiplied by its length.

J = 1/G sum_i |y_i| min(s_i A_i, clip(s_i) A_i), s_i as in GSPO (arXiv 2507.18071, equation 7); the clip is that of its
section 5.1.
"""

from __future__ import annotations

import torch
from tests.oracles.common import Given, Hand, clipped, decisions, z_score, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, clip_low: float = 2e-3, clip_high: float = 2.5e-3) -> Tensor:
    """The mean over members of length times surrogate: what a sum over decisions of a constant gives."""
    advantages = z_score(given)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        if not positions:
            continue
        mean_gap = sum(log_prob[b, t] - given.old_log_prob[b, t] for t in positions) / len(positions)
        total = total - len(positions) * clipped(torch.exp(mean_gap), advantage, clip_low, clip_high)
    return total / len(advantages)


# Member 0: 2 * -0.998 (dead); member 2: 3 * 0.9378887. Loss (1.996 - 2.8136661) / 5; gradient -0.9378887 / 5 each.
HAND = Hand(-0.1635332366, [[0.0] * 3, [0.0] * 3, [-0.1875777455] * 3, [0.0] * 3, [0.0] * 3])
