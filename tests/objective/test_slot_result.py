"""A piece of a user's own that returns another type or shape is named by its path at its first call."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from groupwise import Objective, Rollouts, Scored
from groupwise.config import PieceError

MODULE = """
from typing import ClassVar
import torch
from groupwise.objective import slot
from groupwise.objective.divergence import Penalty

class Advantage(slot.AdvantageSlot):
    def __call__(self, rewards, running): return rewards.value
class Admission(slot.AdmissionSlot):
    def __call__(self, rewards): return torch.ones(rewards.num_groups)
class Smoothing(slot.SmoothingSlot):
    scope: ClassVar[str] = "decision"
    def __call__(self, decisions): return None
class Ratio(slot.RatioSlot):
    scope: ClassVar[str] = "decision"
    def __call__(self, log_ratio, decisions): return log_ratio.mean(1)
class Trust(slot.TrustSlot):
    scope: ClassVar[str] = "decision"
    def __call__(self, log_ratio, decisions): return log_ratio
class Credit(slot.CreditSlot):
    def __call__(self, decisions): return torch.ones(9)
class Correction(slot.CorrectionSlot):
    def __call__(self, log_weight, mask): return 1.0
class Aggregation(slot.AggregationSlot):
    def __call__(self, counts): return torch.ones(3)
class Divergence(Penalty):
    def __call__(self, decisions, reference_log_prob, exact): return reference_log_prob.sum()
class Measured(slot.RatioSlot):
    scope: ClassVar[str] = "decision"
    def __call__(self, log_ratio, decisions): return log_ratio
    def measure(self, log_level, decisions): return {"level": 1.0}
class Unmeasured(slot.SmoothingSlot):
    scope: ClassVar[str] = "decision"
    def __call__(self, decisions): return decisions.log_ratio
    def measure(self, decisions, smoothed): return None
class Counted(slot.CreditSlot):
    def __call__(self, decisions): return decisions.mask.float()
    def measure(self, weight, decisions): return {"weight": weight.mean()}
"""
FAULTS = [
    ("advantage", "Advantage", r"it returned a Tensor; return the advantages and the running statistics"),
    ("admission", "Admission", r"it returned torch.float32 \[1\]; return bool \[P\] = \[1\]"),
    ("smoothing", "Smoothing", r"it returned None; return \[B, T\] = \[2, 3\]"),
    ("ratio", "Ratio", r"it returned a tensor of shape \[2\]; return \[B, T\] = \[2, 3\]"),
    ("trust", "Trust", r"it returned a Tensor; return groupwise.objective.slot.Surrogate"),
    ("credit.callable", "Credit", r"it returned a tensor of shape \[9\]; return \[B, T\] = \[2, 3\]"),
    ("correction", "Correction", r"it returned a float; return \[B, T\] = \[2, 3\]"),
    ("aggregation", "Aggregation", r"it returned a tensor of shape \[3\]; return \[B, T\] = \[2, 3\]"),
    ("divergence", "Divergence", r"it returned a tensor of shape \[\]; return \[B, T\] = \[2, 3\]"),
    ("ratio", "Measured", r"its metric 'level' is a float; give a groupwise.statistics.Statistic"),
    ("smoothing", "Unmeasured", r"its metrics are None; give a dict of groupwise.statistics.Statistic by name"),
    ("credit.callable", "Counted", r"its metric 'weight' is a Tensor; give a groupwise.statistics.Statistic"),
]


@pytest.mark.parametrize(("slot", "piece", "message"), FAULTS, ids=[piece for _, piece, _ in FAULTS])
def test_a_result_of_another_shape_is_named_by_its_path(
    slot: str, piece: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "misshapen.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "misshapen", raising=False)
    keys = {f"{slot}.path": f"misshapen:{piece}"} | ({} if "." in slot else {f"{slot}.kind": "callable"})
    objective = Objective.preset("grpo", **keys)
    log_prob = torch.full((2, 3), -1.0)
    rollouts = Rollouts(
        torch.zeros(2, dtype=torch.long),
        torch.ones(2, 3, dtype=torch.bool),
        log_prob,
        {"right": [1.0, 0.0]},
        behaviour_log_prob=log_prob,
        reference_log_prob=log_prob,
    )

    def whole_loss() -> None:
        plan = objective.plan(objective.prepare(rollouts, objective.init()))
        objective.loss(Scored(log_prob.clone().requires_grad_()), plan)

    with pytest.raises(PieceError, match=rf"^path = 'misshapen:{piece}': {message}"):
        whole_loss()
