"""GSPO, arXiv 2507.18071, equations 5 (objective) and 7 (ratio).

s_i = (pi(y_i) / pi_old(y_i))^(1/|y_i|) = exp(mean_t d_t), one clipped surrogate a member, mean over members.
"""

from __future__ import annotations

import torch
from tests.oracles.common import Given, Hand, clipped, decisions, z_score, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, clip_low: float = 3e-4, clip_high: float = 4e-4) -> Tensor:
    """A member without decisions has no ratio: it adds nothing and still counts in B."""
    advantages = z_score(given)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        if not positions:
            continue
        mean_gap = sum(log_prob[b, t] - given.old_log_prob[b, t] for t in positions) / len(positions)
        total = total - clipped(torch.exp(mean_gap), advantage, clip_low, clip_high)
    return total / len(advantages)


# Member 0: s = sqrt(0.75) = 0.866, A = -1: min(-0.866, -0.9997) = -0.9997 (dead). Member 2: s = 0.825^(1/3) =
# 0.9378887, A = 1: 0.9378887. Loss (0.9997 - 0.9378887) / 5; gradient -0.9378887 / (5 * 3) on each of its decisions.
HAND = Hand(0.01236225446, [[0.0] * 3, [0.0] * 3, [-0.06252591518] * 3, [0.0] * 3, [0.0] * 3])
