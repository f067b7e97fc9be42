"""GMPO, arXiv 2507.20673, equation 4 and algorithm 1: J = 1/G sum_i { prod_t min(r^s, clip(r, e^-0.4, e^0.4)^s)^s
}^(1/|o_i|) A_i, s = sgn(A_i).

In log space, as its algorithm and code: d' = s min(s d, s clamp(d, -0.4, 0.4)), which is min(d, 0.4) for A > 0 and
max(d, -0.4) for A < 0.
"""

from __future__ import annotations

import torch
from tests.oracles.common import Given, Hand, decisions, z_score, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, low: float = 0.4, high: float = 0.4) -> Tensor:
    """A clipped decision is a constant; a member without decisions adds nothing and counts in B."""
    advantages = z_score(given)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        if not positions or advantage == 0.0:
            continue
        sign = 1.0 if advantage > 0 else -1.0
        gaps = []
        for t in positions:
            gap = log_prob[b, t] - given.old_log_prob[b, t]
            bounded = min(max(float(gap.detach()), -low), high)
            gaps.append(torch.tensor(bounded, dtype=gap.dtype) if sign * bounded < sign * float(gap.detach()) else gap)
        total = total - torch.exp(torch.stack(gaps).sum() / len(positions)) * advantage
    return total / len(advantages)


# Member 0 (A = -1): d = 0.4054651 and max(-0.6931472, -0.4) = -0.4 (dead): mean 0.0027326, ratio 1.0027363. Member 2 (A
# = 1): 0.0953102, min(0.4054651, 0.4) = 0.4 (dead), -0.6931472: mean -0.0659457, ratio 0.9361817. Loss (1.0027363 -
# 0.9361817) / 5. Gradients 1.0027363 / 10 on the first, -0.9361817 / 15 on the first and third.
HAND = Hand(
    0.01331091172, [[0.1002736289, 0.0, 0.0], [0.0] * 3, [-0.06241211534, 0.0, -0.06241211534], [0.0] * 3, [0.0] * 3]
)
