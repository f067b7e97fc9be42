"""GSPO-token, arXiv 2507.18071, equations 13 and 14.

s_it = sg(s_i) pi(y_t) / sg(pi(y_t)): the value of GSPO's ratio, the gradient of one decision; clipped per decision,
mean over decisions, then over members.
"""

from __future__ import annotations

import math

import torch
from tests.oracles.common import Given, Hand, clipped, decisions, z_score, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, clip_low: float = 3e-4, clip_high: float = 4e-4) -> Tensor:
    """With one advantage a member this has GSPO's value and gradient."""
    advantages = z_score(given)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        gaps = [float(log_prob[b, t].detach() - given.old_log_prob[b, t]) for t in positions]
        for t in positions:
            level = math.exp(math.fsum(gaps) / len(gaps))
            ratio = level * torch.exp(log_prob[b, t] - log_prob[b, t].detach())
            total = total - clipped(ratio, advantage, clip_low, clip_high) / len(positions)
    return total / len(advantages)


# As GSPO, the advantage being one number a member: s = 0.866 (dead at A = -1) and 0.9378887 (A = 1).
HAND = Hand(0.01236225446, [[0.0] * 3, [0.0] * 3, [-0.06252591518] * 3, [0.0] * 3, [0.0] * 3])
