"""The weights that corrections bound: of a decision, of a member, of its decisions on average."""

from __future__ import annotations

import torch
from tests.objective.small import close

from groupwise.objective.correction import decision_weight, mean_weight, member_weight

LOG = torch.tensor([[2.0, 8.0, 5.0], [0.5, 3.0, 3.0], [7.0, 7.0, 7.0]], dtype=torch.float64).log()
MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


def test_by_hand() -> None:
    close(decision_weight(LOG), [[2.0, 8.0, 5.0], [0.5, 3.0, 3.0], [7.0, 7.0, 7.0]])
    close(member_weight(LOG, MASK), [[16.0], [0.5], [1.0]])
    close(mean_weight(LOG, MASK), [[4.0], [0.5], [1.0]])
