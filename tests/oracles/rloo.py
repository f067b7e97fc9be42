"""RLOO, arXiv 2402.14740: REINFORCE with the mean of the other members' rewards as the baseline, whole answers as actions.

R'_b = R_b - beta sum_t (lp_old - lp_ref), A_b = R'_b - mean_{i != b} R'_i, loss = -mean_b A_b sum_t lp_t.
``off_policy`` multiplies the gradient by the product ratio, which is 1 in the paper's setting (one update a rollout):
S = sg(rho) A lp has then the paper's value, S = rho A its gradient.
"""

from __future__ import annotations

import math

import torch
from tests.oracles.common import LOG_CLAMP, Given, Hand, decisions, group_of, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, beta: float = 0.0, surrogate: str = "log_prob") -> Tensor:
    """``surrogate``: ``log_prob`` (A lp), or ``product`` (rho A, rho = exp(clamp(sum d, -80, 80)))."""
    num_members = len(given.group)
    shaped = list(given.rewards)
    if beta:
        assert given.reference_log_prob is not None
        for b in range(num_members):
            gaps = [float(given.old_log_prob[b, t] - given.reference_log_prob[b, t]) for t in decisions(given, b)]
            shaped[b] -= beta * math.fsum(gaps)
    total = zero(log_prob)
    for b in range(num_members):
        others = [shaped[i] for i in group_of(given, b) if i != b]
        advantage = shaped[b] - math.fsum(others) / len(others)
        positions = decisions(given, b)
        if not positions:
            continue
        if surrogate == "log_prob":
            total = total - advantage * sum(log_prob[b, t] for t in positions)
        else:
            gap = sum(log_prob[b, t] - given.old_log_prob[b, t] for t in positions)
            total = total - len(positions) * advantage * torch.exp(torch.clamp(gap, -LOG_CLAMP, LOG_CLAMP))
    return total / num_members


# A = 0 - 1.5 = -1.5, 1 - 1 = 0, 2 - 0.5 = 1.5. Sums of lp: -0.5945349 - 1.6931472 = -2.2876821 and
# -0.9046898 - 0.5945349 - 1.6931472 = -3.1923719. Loss -1.5 (2.2876821 - 3.1923719) / 5; gradients 1.5 / 5 and -1.5 / 5.
HAND = Hand(0.2714069460, [[0.3, 0.3, 0.0], [0.0] * 3, [-0.3] * 3, [0.0] * 3, [0.0] * 3])
