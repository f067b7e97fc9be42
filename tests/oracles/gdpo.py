"""GDPO, arXiv 2601.05242, equations 4 to 6: each reward z-scored in its group, the weighted sum whitened over the
batch; PPO's clip, token mean.

x_i = sum_k w_k (R_ik - mean_k) / std_k, A_i = (x_i - mean(x)) / std(x), both standard deviations unbiased.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tests.oracles.common import Given, Hand, deviation, token_clip, z_score
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    """The first reward weighs 1, the second 1/2."""
    assert given.second is not None
    summed = [
        first + 0.5 * second
        for first, second in zip(z_score(given), z_score(replace(given, rewards=given.second)), strict=True)
    ]
    mean, std = math.fsum(summed) / len(summed), deviation(summed)
    return token_clip(log_prob, given, [(value - mean) / std for value in summed], clip_low, clip_high)


# z-scores -1, 0, 1, 0, 0 and 0, -1, 1, -0.7071068, 0.7071068: x = -1, -0.5, 1.5, -0.3535534, 0.3535534, mean 0, squares
# 3.75, std 0.9682458, A = -1.0327956, -0.5163978, 1.5491933, -0.3651484, 0.3651484. Surrogates: member 0 (1.5 + 0.8) A,
# member 1 2 A, member 2 (1.1 + 1.2 + 0.5) A, members 3 and 4 cancel: -2.3754298 - 1.0327956 + 4.3377413 = 0.9295160,
# over 8. Gradients -A r / 8 where alive.
HAND = Hand(
    -0.1161894999,
    [
        [0.1936491673, 0.0, 0.0],
        [0.1290994449, 0.0, 0.0],
        [-0.2130140840, 0.0, -0.09682458366],
        [0.04564354646, 0.0, 0.0],
        [-0.04564354646, 0.0, 0.0],
    ],
)
