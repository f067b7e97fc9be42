"""Credit by the inverse of the step size."""

from __future__ import annotations

import pytest
import torch
from tests.objective.small import close, member_ratios, recorded

from groupwise.objective import Objective
from groupwise.objective.credit import InverseStep
from groupwise.records import Rollouts
from groupwise.statistics import finish

STEPS = torch.tensor([[0.25, 0.0, 0.5], [2.0, 0.0, 0.0]], dtype=torch.float64)


def test_raw_is_the_inverse() -> None:
    decisions = recorded(member_ratios([1.0, None, 1.0], [1.0]), step_size=STEPS)
    credit = InverseStep(raw=True)
    close(credit(decisions), [[4.0, 0.0, 2.0], [0.5, 0.0, 0.0]])
    assert finish(credit.measure(credit(decisions), decisions)) == pytest.approx({"inverse_step/mean_weight": 6.5 / 3})


def test_mean_one_otherwise() -> None:
    decisions = recorded(
        member_ratios([1.0, None, 1.0], [1.0], [None]), step_size=torch.cat([STEPS, torch.zeros(1, 3)])
    )
    close(InverseStep()(decisions), [[4 / 3, 0.0, 2 / 3], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


def test_needs_positive_steps() -> None:
    objective = Objective.preset("bnpo", **{"credit.inverse_step.raw": True})
    assert objective.requires_rollouts == {"step_size"}
    group, mask, old, rewards = (
        torch.tensor([0, 0]),
        torch.ones(2, 1, dtype=torch.bool),
        torch.full((2, 1), -1.0),
        {"reward": [0.0, 1.0]},
    )
    with pytest.raises(ValueError, match=r"Rollouts.step_size is missing, and credit.inverse_step reads it"):
        objective.prepare(Rollouts(group, mask, old, rewards), objective.init())
    with pytest.raises(ValueError, match=r"Rollouts.step_size must be positive.*lowest is 0"):
        Rollouts(group, mask, old, rewards, step_size=torch.tensor([[0.1], [0.0]]))
