"""What a live log-prob may be; `tests/objective/test_objective.py` has the errors as `loss` and
`cotangents` give them.
"""

from __future__ import annotations

import pytest
import torch

from groupwise.objective import Objective
from groupwise.objective.loss import check_log_prob
from groupwise.records import Rollouts


def test_masked_log_probs_may_be_nan_and_counted_ones_raise_no_error() -> None:
    objective = Objective.preset("dapo")
    mask = torch.tensor([[True, False], [True, True]])
    batch = objective.prepare(
        Rollouts(torch.tensor([0, 0]), mask, torch.full((2, 2), -1.0), {"r": [1.0, 0.0]}), objective.init()
    )
    masked = torch.tensor([[-1.0, torch.nan], [-1.0, -2.0]])
    check_log_prob(masked, objective.plan(batch))
    check_log_prob(masked[:0], objective.plan(batch))
    broken = torch.tensor([[torch.inf, torch.nan], [-1.0, -torch.inf]])
    check_log_prob(broken, objective.plan(batch, not_finite="counted"))
    with pytest.raises(ValueError, match=r"log_prob\[0, 0\] is inf where the mask is true \(2 such places"):
        check_log_prob(broken, objective.plan(batch))
    # Counting what is no number does not let probabilities pass.
    with pytest.raises(ValueError, match=r"log_prob\[1, 0\] is 0.5, above zero"):
        check_log_prob(torch.tensor([[torch.nan, -1.0], [0.5, -1.0]]), objective.plan(batch, not_finite="counted"))
