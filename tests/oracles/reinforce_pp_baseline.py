"""REINFORCE++ with a baseline, arXiv 2501.03262, section 3: A = whiten over the batch of R - mean_group(R), k2 in the
loss; PPO's clip, token mean.

k2 = (lp - lp_ref)^2 / 2. Statistics over members, unbiased: the preset says so.
"""

from __future__ import annotations

import math

from tests.oracles.common import Given, Hand, decisions, deviation, group_mean, num_decisions, token_clip
from torch import Tensor


def loss(
    log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2, beta: float = 0.01
) -> Tensor:
    """The mean over the batch is 0 already, since every group's is."""
    assert given.reference_log_prob is not None
    centred = [reward - group_mean(given, b) for b, reward in enumerate(given.rewards)]
    mean, std = math.fsum(centred) / len(centred), deviation(centred)
    total = token_clip(log_prob, given, [(value - mean) / std for value in centred], clip_low, clip_high)
    for b in range(len(given.group)):
        for t in decisions(given, b):
            total = total + beta * (log_prob[b, t] - given.reference_log_prob[b, t]) ** 2 / (2.0 * num_decisions(given))
    return total


# Centred -1, 0, 1, 0, 0: std 0.7071068, as Lite PPO: -0.0883883. k2 on member 0's first decision: 0.5 * 0.6931472^2 =
# 0.2402265, times 0.01 / 8 = 0.0003003; its gradient -0.6931472 * 0.01 / 8 = -0.0008664.
HAND = Hand(
    -0.08808806451, [[0.2642986089, 0.0, 0.0], [0.0] * 3, [-0.1944543648, 0.0, -0.08838834765], [0.0] * 3, [0.0] * 3]
)
