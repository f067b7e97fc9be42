"""DPPO with a binary KL mask, arXiv 2602.04879, section 4: as DPPO-TV with D = mu ln(mu / pi) + (1 - mu) ln((1 - mu) /
(1 - pi)).
"""

from __future__ import annotations

import math

from tests.oracles.common import Given, Hand
from tests.oracles.dppo_tv import masked_loss
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, threshold: float = 0.05, maximum: float = 20.0) -> Tensor:
    """KL of the sampler's (this decision, any other) from the policy's."""

    def beyond(mu: float, pi: float) -> bool:
        return mu * math.log(mu / pi) + (1.0 - mu) * math.log((1.0 - mu) / (1.0 - pi)) > threshold

    return masked_loss(log_prob, given, beyond, maximum)


# mu = 0.3678794. At ratio 1.5: mu ln(1/1.5) = -0.1491623, 0.6321206 ln(0.6321206 / 0.4481808) = 0.2173757, D =
# 0.0682134. At 0.5: 0.2549946 - 0.1614487 = 0.0935459. At 1.1: -0.0350627 + 0.0379019 = 0.0028392. Beyond .05 are the
# first two: the mask, and so all else, is DPPO-TV's.
HAND = Hand(0.1187412568, [[0.1875, 0.0, 0.0], [0.0] * 3, [-0.1375, 0.0, -0.0625], [0.0] * 3, [0.0] * 3])
