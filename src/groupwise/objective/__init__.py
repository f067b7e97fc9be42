"""The loss: advantages, trust regions, credit, aggregation, divergence. Tensors in, tensors out; knows no domain.

Each name of this package is imported at its first use, so that methods can be read without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.objective.batch import Batch, ObjectiveState, Plan
    from groupwise.objective.objective import Objective

_PLACES = {"Batch": "batch", "Objective": "objective", "ObjectiveState": "batch", "Plan": "batch"}

__all__ = ["Batch", "Objective", "ObjectiveState", "Plan"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
