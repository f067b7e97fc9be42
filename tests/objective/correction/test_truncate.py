"""TIS: the weight of each decision, bounded above."""

from __future__ import annotations

import torch
from tests.objective.small import close

from groupwise.objective.correction.truncate import Truncate


def test_min_of_weight_and_maximum() -> None:
    log_weight = torch.tensor([[3.0, 1.5, 0.25]], dtype=torch.float64).log()
    close(Truncate(maximum=2.0)(log_weight, torch.ones(1, 3, dtype=torch.bool)), [[2.0, 1.5, 0.25]])
    assert Truncate.reads == {"behaviour_log_prob"}
