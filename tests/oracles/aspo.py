"""ASPO, arXiv 2510.06062, section 4: importance ratios of positive decisions flipped, r^ = pi_old pi / sg(pi^2); masked
and dual-clipped softly.

From its authors' code (Archer2.0, compute_policy_loss_archer). A > 0: nothing flows where r > 1 + high (r is replaced
by that), else the weight is min(1 / r, c); A < 0: nothing flows where r < 1 - low, else the weight is min(r, c). A
weight that c cuts keeps its gradient. Mean over all decisions.
"""

from __future__ import annotations

import math

import torch
from tests.oracles.common import Given, Hand, decisions, num_decisions, z_score, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, low: float = 0.2, high: float = 0.2, bound: float = 3.0) -> Tensor:
    """`pi / sg(pi)` carries the gradient of a weighted decision; a masked one is the constant at the edge
    of its clip.
    """
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        for t in decisions(given, b):
            ratio = math.exp(float(log_prob[b, t].detach() - given.old_log_prob[b, t]))
            held = ratio > 1.0 + high if advantage > 0 else ratio < 1.0 - low
            ratio = min(ratio, 1.0 + high) if advantage > 0 else max(ratio, 1.0 - low)
            weight = min(1.0 / ratio, bound) if advantage > 0 else min(ratio, bound)
            live = torch.exp(log_prob[b, t] - log_prob[b, t].detach())
            total = total - weight * advantage * (live.detach() if held else live)
    return total / num_decisions(given)


# Cap 1.4. Member 0 (A = -1): 1.5 is capped at 1.4 and keeps its gradient; 0.5 is held at 0.8. Member 2 (A = 1): 1 / 1.1
# = 0.9090909; 1.5 is held at 1 / 1.2 = 0.8333333; 1 / 0.5 = 2 is capped at 1.4. S = -1.4 - 0.8 + 0.9090909 + 0.8333333
# + 1.4 = 0.9424242; over 8. Gradients -weight A / 8.
HAND = Hand(
    -0.1178030303, [[0.175, 0.0, 0.0], [0.0] * 3, [-0.1136363636, 0.0, -0.175], [0.0] * 3, [0.0] * 3], {"bound": 1.4}
)
