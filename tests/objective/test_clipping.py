"""The pessimistic clip with per-decision bounds."""

from __future__ import annotations

import torch
from tests.objective.small import close

from groupwise.objective.clipping import clipped


def test_bounds_may_differ_by_decision() -> None:
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5, 1.5, 0.5, 1.5], dtype=torch.float64)
    advantage = torch.tensor([1.0, 1.0, -2.0, -2.0, 0.0, 1.0, -1.0], dtype=torch.float64)
    width = torch.tensor([0.1, 0.9, 0.1, 0.9, 0.1, 0.1, 0.1], dtype=torch.float64)
    value, too_low, too_high = clipped(ratio.log(), advantage, width, width)
    close(value, [1.1, 1.5, -1.8, -1.0, 0.0, 0.5, -1.5])
    assert too_low.tolist() == [False, False, True, False, False, False, False]
    assert too_high.tolist() == [True, False, False, False, False, False, False]
