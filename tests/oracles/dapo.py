"""DAPO, arXiv 2503.14476, equations 8 (objective), 9 (advantage) and 11 (dynamic sampling: flat groups do not train).

Token mean over all trained decisions of the update, clip-higher, no KL. The paper divides by the decisions of one group
and then averages over prompts; the published code (verl) and this transcription divide once by all of them. The
overlong penalty (equation 13) is a reward and arrives inside the rewards.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.oracles.common import Given, Hand, clipped, decisions, is_flat, ratios_of, z_score, zero
from torch import Tensor


def loss(
    log_prob: Tensor,
    given: Given,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    correction: Mapping[tuple[int, int], float] | None = None,
) -> Tensor:
    """Members of flat groups are dropped: they leave the divisor as well. `correction` is an overlay's weight by
    (member, place).
    """
    advantages = z_score(given)
    total, count = zero(log_prob), 0
    for b, advantage in enumerate(advantages):
        if is_flat(given, b):
            continue
        count += len(decisions(given, b))
        for t, ratio in zip(decisions(given, b), ratios_of(log_prob, given, b), strict=True):
            weight = 1.0 if correction is None else correction[b, t]
            total = total - weight * clipped(ratio, advantage, clip_low, clip_high)
    return total / max(count, 1)


# Members 3 and 4 are dropped: N = 6. Member 0: -1.5, -0.8 (dead); member 2: 1.1, min(1.5, 1.28) = 1.28 (dead), 0.5.
# Sum 0.58, loss -0.58 / 6; gradients 1.5 / 6, -1.1 / 6, -0.5 / 6.
HAND = Hand(-0.09666666667, [[0.25, 0.0, 0.0], [0.0] * 3, [-0.18333333333, 0.0, -0.08333333333], [0.0] * 3, [0.0] * 3])
