"""MIS: whole members whose product of weights is too large do not train."""

from __future__ import annotations

import torch
from tests.objective.small import close

from groupwise.objective.correction.mask import Mask

# Products 3, 0.75 and, the masked 100 left out, 1.9.
WEIGHT = torch.tensor([[2.0, 1.5], [1.5, 0.5], [1.9, 100.0]], dtype=torch.float64).log()
MASK = torch.tensor([[True, True], [True, True], [True, False]])


def test_a_member_is_kept_or_dropped_whole_and_survivors_keep_their_weights() -> None:
    close(torch.where(MASK, Mask(maximum=2.0)(WEIGHT, MASK), 0.0), [[0.0, 0.0], [1.5, 0.5], [1.9, 0.0]])


def test_a_product_at_the_maximum_trains() -> None:
    close(Mask(maximum=1.0)(torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.bool)), [[1.0, 1.0]])
