"""SAPO, arXiv 2511.20347, equations 5 and 6: J = 1/G sum_i 1/|y_i| sum_t f(r_it) A_i, f(r) = (4 / tau) sigmoid(tau (r -
1)).

tau is tau_pos where A > 0 and tau_neg elsewhere; the paper's are 1.0 and 1.05. z-scores as in GRPO, no KL.
"""

from __future__ import annotations

import torch
from tests.oracles.common import Given, Hand, decisions, ratios_of, z_score, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, tau_pos: float = 1.0, tau_neg: float = 1.05) -> Tensor:
    """The gate is differentiated: its slope is 4 p (1 - p), one at r = 1."""
    advantages = z_score(given)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        tau = tau_pos if advantage > 0 else tau_neg
        for ratio in ratios_of(log_prob, given, b):
            gate = 4.0 / tau / (1.0 + torch.exp(-tau * (ratio - 1.0)))
            total = total - gate * advantage / len(decisions(given, b))
    return total / len(advantages)


# Member 0 (A = -1, tau 1.05): sigmoid(+-0.525) sum to 1, so the mean gate is 4 / 1.05 / 2 = 1.9047619. Member 2 (A = 1,
# tau 1): sigmoids of 0.1, 0.5, -0.5 are 0.5249792, 0.6224593, 0.3775407, sum 1.5249792, mean gate 2.0333056. Loss
# (1.9047619 - 2.0333056) / 5. Gradients -A 4 p (1 - p) r / (5 n): member 0 has p = 0.6283162, 4 p (1 - p) = 0.9341398,
# times 1.5 / 10 and 0.5 / 10; member 2 has 0.9975041, 0.9400148, 0.9400148, times 1.1 / 15, 1.5 / 15, 0.5 / 15.
HAND = Hand(
    -0.02570873571,
    [
        [0.1401209735, 0.04670699116, 0.0],
        [0.0] * 3,
        [-0.07315030512, -0.09400148488, -0.03133382829],
        [0.0] * 3,
        [0.0] * 3,
    ],
)
