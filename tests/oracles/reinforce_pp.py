"""REINFORCE++, arXiv 2501.03262, section 3: A = whiten over the batch of R - beta sum_t (lp_old - lp_ref); PPO's clip,
token mean.

Every decision carries the member's whole penalty (the paper's at t: from t on), and the statistics are over members,
unbiased: the preset says so.
"""

from __future__ import annotations

import math

from tests.oracles.common import Given, Hand, decisions, deviation, token_clip
from torch import Tensor


def loss(
    log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2, beta: float = 0.01
) -> Tensor:
    """Groups play no part: a flat group keeps what the others make of it."""
    assert given.reference_log_prob is not None
    shaped = []
    for b, reward in enumerate(given.rewards):
        shaped.append(
            reward
            - beta
            * math.fsum(float(given.old_log_prob[b, t] - given.reference_log_prob[b, t]) for t in decisions(given, b))
        )
    mean, std = math.fsum(shaped) / len(shaped), deviation(shaped)
    return token_clip(log_prob, given, [(value - mean) / std for value in shaped], clip_low, clip_high)


# At beta 0.1 the rewards are 0.0405465, 1.0693147, 1.9807628, 1, 1 (see rloo): mean 1.0181248, deviations -0.9775783,
# 0.0511899, 0.9626380, -0.0181248 twice, squares 1.8856086, std 0.6865873, A = -1.4238222, 0.0745570, 1.4020620,
# -0.0263984 twice. Surrogates 2.3 A, 1.2 A (dead), 2.8 A, A, A: -3.2747911 + 0.0894684 + 3.9257736 - 0.0527968 =
# 0.6876541, over 8. Gradients -A r / 8 where alive.
HAND = Hand(
    -0.08595676337,
    [
        [0.2669666644, 0.0, 0.0],
        [0.0] * 3,
        [-0.1927835231, 0.0, -0.08762887413],
        [0.003299800147, 0.0, 0.0],
        [0.003299800147, 0.0, 0.0],
    ],
    {"beta": 0.1},
)
