"""The original project's aggressive combination: AMIC (2.3), gradient-adaptive credit (2.2), Gaussian region (2.4).

rho_t = sg(rho) exp(lp_t - sg(lp_t)): differentiating rho itself would cancel the credit. Token mean.
"""

from __future__ import annotations

import math

import torch
from tests.oracles.common import Given, Hand, decisions, gradient_signal, num_decisions, softmax_credit, z_score, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, temperature: float = 1.0, sigma: float = 0.2) -> Tensor:
    """The gate is one number a member; the gradient of each decision is its credit times gate times rho times A."""
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        positions = decisions(given, b)
        if not positions:
            continue
        rho = math.fsum(math.exp(float(log_prob[b, t].detach() - given.old_log_prob[b, t])) for t in positions) / len(
            positions
        )
        gate = math.exp(-((rho - 1.0) ** 2) / (2.0 * sigma**2))
        credit = softmax_credit(gradient_signal(log_prob, given, b), temperature)
        for weight, t in zip(credit, positions, strict=True):
            level = rho * torch.exp(log_prob[b, t] - log_prob[b, t].detach())
            total = total - weight * gate * level * advantage
    return total / num_decisions(given)


# Member 0: rho = 1, gate 1, S = -1, credits (0.5, 1.5) sum to 2. Member 2: rho = 1.0333333, gate exp(-0.0333333^2 /
# 0.08) = 0.9862071, S = 1.0190807, credits 0.7627119, 0.5593220, 1.6779661 sum to 3. Loss -(3.0572421 - 2) / 8.
# Gradients 0.5 / 8, 1.5 / 8; -1.0190807 c_t / 8.
HAND = Hand(
    -0.1321552577,
    [[0.0625, 0.1875, 0.0], [0.0] * 3, [-0.09715811637, -0.07124928534, -0.2137478560], [0.0] * 3, [0.0] * 3],
)
