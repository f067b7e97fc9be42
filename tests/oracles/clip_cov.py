"""Clip-Cov, arXiv 2505.22617, equations 9 to 11 and its code: a few decisions drawn among those of high covariance lose
their gradient.

cov = (A - mean A) (lp - mean lp) over all decisions; eligible where lower < cov < upper and the clip does not act; of
them max(1, int(share N)) are drawn: those whose lots are smallest (the code permutes at random). Mean over all
decisions, a wide clip of 1 as in its runs.
"""

from __future__ import annotations

import math

from tests.oracles.common import Given, Hand, clipped, covariances, decisions, num_decisions, z_score, zero
from torch import Tensor


def loss(
    log_prob: Tensor,
    given: Given,
    *,
    clip_low: float = 1.0,
    clip_high: float = 1.0,
    share: float = 0.0002,
    lower: float = 1.0,
    upper: float = 5.0,
) -> Tensor:
    """A drawn decision adds nothing and stays in the divisor."""
    assert given.lot is not None
    advantages = z_score(given)
    spread = covariances(log_prob, given, advantages)
    ratios = {(b, t): math.exp(float(log_prob[b, t].detach() - given.old_log_prob[b, t])) for b, t in spread}
    eligible = []
    for (b, t), value in spread.items():
        held = (advantages[b] > 0 and ratios[b, t] > 1.0 + clip_high) or (
            advantages[b] < 0 and ratios[b, t] < 1.0 - clip_low
        )
        if lower < value < upper and not held:
            eligible.append((float(given.lot[b, t]), b, t))
    drawn = {(b, t) for _, b, t in sorted(eligible)[: max(1, int(share * num_decisions(given)))]}
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        for t in decisions(given, b):
            if (b, t) not in drawn:
                total = total - clipped(
                    (log_prob[b, t] - given.old_log_prob[b, t]).exp(), advantage, clip_low, clip_high
                )
    return total / num_decisions(given)


# mean A = (3 - 2) / 8 = 0.125, mean lp = -7.7869068 / 8 = -0.9733634. Covariances: member 0 -1.125 * 0.3788285 =
# -0.4261821 and -1.125 * -0.7197838 = 0.8097568; member 1 -0.0833138; member 2 0.875 * (0.0686736, 0.3788285,
# -0.7197838) = 0.0600894, 0.3314749, -0.6298108; members 3 and 4 0.0033296. Between 0.3 and 0.6 lies member 2's second
# alone: drawn. S = -1.5 - 0.5 + 1.1 + 0.5 = -0.4, over 8.
HAND = Hand(
    0.05,
    [[0.1875, 0.0625, 0.0], [0.0] * 3, [-0.1375, 0.0, -0.0625], [0.0] * 3, [0.0] * 3],
    {"lower": 0.3, "upper": 0.6},
)
