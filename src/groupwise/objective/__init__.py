"""The loss: advantages, trust regions, credit, aggregation, divergence. Tensors in, tensors out; knows no domain."""

from __future__ import annotations

from groupwise.objective.batch import Batch
from groupwise.objective.objective import Objective
from groupwise.objective.plan import Plan
from groupwise.objective.state import ObjectiveState

__all__ = ["Batch", "Objective", "ObjectiveState", "Plan"]
