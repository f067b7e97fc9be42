"""No correction weighs one."""

from __future__ import annotations

import torch

from groupwise.objective.correction import NoCorrection


def test_weight_is_one() -> None:
    log_weight = torch.tensor([[3.0, -3.0]])
    assert NoCorrection()(log_weight, torch.ones(1, 2, dtype=torch.bool)).tolist() == [[1.0, 1.0]]
    assert NoCorrection().reads == frozenset()
