"""CISPO, arXiv 2506.13585, equations 4 and 5.

J = 1 / sum_i |o_i| sum_i sum_t sg(clip(r_t)) A log pi(o_t); the paper uses no lower bound. ``ratio_max`` is absolute.
"""

from __future__ import annotations

import math

from tests.oracles.common import Given, Hand, decisions, num_decisions, z_score, zero
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, ratio_max: float = 5.0) -> Tensor:
    """No decision loses its gradient: only its weight is capped."""
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        for t in decisions(given, b):
            weight = min(math.exp(float(log_prob[b, t].detach() - given.old_log_prob[b, t])), ratio_max)
            total = total - weight * advantage * log_prob[b, t]
    return total / num_decisions(given)


# Cap 1.2. lp = -1 + ln r. Member 0: weights 1.2, 0.5, lp -0.5945349, -1.6931472: S = 0.7134419, 0.8465736.
# Member 2: weights 1.1, 1.2, 0.5, lp -0.9046898, -0.5945349, -1.6931472: S = -0.9951588, -0.7134419, -0.8465736.
# The sum is -0.9951588; loss 0.9951588 / 8. Gradients: minus weight times A over 8.
HAND = Hand(
    0.1243948503, [[0.15, 0.0625, 0.0], [0.0] * 3, [-0.1375, -0.15, -0.0625], [0.0] * 3, [0.0] * 3], {"ratio_max": 1.2}
)
