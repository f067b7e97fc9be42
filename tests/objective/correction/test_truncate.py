"""TIS: the weight of each decision, bounded above."""

from __future__ import annotations

import pytest
import torch
from tests.objective.small import close

from groupwise.objective.correction import Truncate


def test_min_of_weight_and_maximum() -> None:
    log_weight = torch.tensor([[3.0, 1.5, 0.25]], dtype=torch.float64).log()
    close(Truncate(maximum=2.0)(log_weight, torch.ones(1, 3, dtype=torch.bool)), [[2.0, 1.5, 0.25]])
    assert Truncate.reads == {"behaviour_log_prob"}


def test_a_lower_bound() -> None:
    log_weight = torch.tensor([[3.0, 1.5, 0.25]], dtype=torch.float64).log()
    close(Truncate(minimum=0.5)(log_weight, torch.ones(1, 3, dtype=torch.bool)), [[2.0, 1.5, 0.5]])
    with pytest.raises(ValueError, match=r"minimum \(2.0\) must be below maximum \(2.0\)"):
        Truncate(minimum=2.0)


def test_a_member_s_decisions_weigh_its_product() -> None:
    # Products 1.125 and, the masked 100 left out, 3.
    log_weight = torch.tensor([[3.0, 1.5, 0.25], [1.5, 2.0, 100.0]], dtype=torch.float64).log()
    mask = torch.tensor([[True] * 3, [True, True, False]])
    close(torch.where(mask, Truncate(level="member")(log_weight, mask), 0.0), [[1.125] * 3, [2.0, 2.0, 0.0]])
    close(
        torch.where(mask, Truncate(level="member", minimum=1.5, maximum=9.0)(log_weight, mask), 0.0),
        [[1.5] * 3, [3.0, 3.0, 0.0]],
    )
