"""OPO, arXiv 2505.23585, equation 7: the length-weighted baseline b = sum_j l_j R_j / sum_j l_j of a group, exactly
on-policy, no ratio, no KL.

L = -1/N sum_bt (R_b - b) lp_bt, the token mean of its code (verl).
"""

from __future__ import annotations

import math

from tests.oracles.common import Given, Hand, decisions, group_of, is_flat, num_decisions, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given) -> Tensor:
    """A flat group has R = b."""
    total = zero(log_prob)
    for b, reward in enumerate(given.rewards):
        lengths = {i: len(decisions(given, i)) for i in group_of(given, b)}
        weighted = math.fsum(length * given.rewards[i] for i, length in lengths.items())
        advantage = 0.0 if is_flat(given, b) else reward - weighted / sum(lengths.values())
        for t in decisions(given, b):
            total = total - advantage * log_prob[b, t]
    return total / num_decisions(given)


# Lengths 2, 1, 3, rewards 0, 1, 2: b = 7 / 6, A = -7/6, -1/6, 5/6. Sums of lp -2.2876821, -0.3068528, -3.1923719:
# S = 2.6689624 + 0.0511421 - 2.6603099 = 0.0597946, over 8. Gradients 7 / 48, 1 / 48, -5 / 48.
HAND = Hand(-0.007474330487, [[7 / 48, 7 / 48, 0.0], [1 / 48, 0.0, 0.0], [-5 / 48] * 3, [0.0] * 3, [0.0] * 3])
