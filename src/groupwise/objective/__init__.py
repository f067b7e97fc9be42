"""The loss: advantages, trust regions, credit, aggregation, divergence. Tensors in, tensors out; knows no domain.

Each name of this package is imported at its first use, so that methods can be read without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.objective.batch import Batch
    from groupwise.objective.objective import Objective
    from groupwise.objective.plan import Plan
    from groupwise.objective.state import ObjectiveState

_PLACES = {"Batch": "batch", "Objective": "objective", "ObjectiveState": "state", "Plan": "plan"}

__all__ = ["Batch", "Objective", "ObjectiveState", "Plan"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
