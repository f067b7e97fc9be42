"""RLOO, arXiv 2402.14740: REINFORCE with the mean of the other members' rewards as the baseline, whole answers as
actions.

R'_b = R_b - beta sum_t (lp_old - lp_ref), A_b = R'_b - mean_{i != b} R'_i, loss = -mean_b A_b sum_t lp_t. The paper
makes one update a rollout, so no ratio appears.
"""

from __future__ import annotations

import math

from tests.oracles.common import Given, Hand, decisions, group_of, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, beta: float = 0.05) -> Tensor:
    """A member alone in its group has no baseline and does not train."""
    assert given.reference_log_prob is not None
    num_members = len(given.group)
    shaped = list(given.rewards)
    for b in range(num_members):
        gaps = [float(given.old_log_prob[b, t] - given.reference_log_prob[b, t]) for t in decisions(given, b)]
        shaped[b] -= beta * math.fsum(gaps)
    total = zero(log_prob)
    for b in range(num_members):
        others = [shaped[i] for i in group_of(given, b) if i != b]
        advantage = shaped[b] - math.fsum(others) / len(others) if others else 0.0
        for t in decisions(given, b):
            total = total - advantage * log_prob[b, t]
    return total / num_members


# lp_old - lp_ref summed: member 0: -(ln 1.5 + ln 2) - ln 0.5 = -0.4054651, member 1: -ln 2 = -0.6931472,
# member 2: -ln 0.825 = 0.1923719, members 3 and 4: 0. At beta 0.1 the rewards are 0.0405465, 1.0693147, 1.9807628, 1,
# 1, so A = -1.4844922, 0.0586600, 1.4258322, 0, 0. Sums of lp: -2.2876821, -0.3068528, -3.1923719. Loss -(3.3960464 -
# 0.0179999 - 4.5517866) / 5; gradients -A / 5.
HAND = Hand(
    0.2347480632,
    [[0.2968984507, 0.2968984507, 0.0], [-0.01173201146, 0.0, 0.0], [-0.2851664393] * 3, [0.0] * 3, [0.0] * 3],
    {"beta": 0.1},
)
