"""Training: the loop, its state and a whole run. Nothing here is imported before it is used, so that configurations
load fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.train.config import EarlyStopping, Stage, TrainConfig
    from groupwise.train.job import Job, Recipe
    from groupwise.train.launch import Result, resume, run
    from groupwise.train.optimiser_config import OptimiserConfig

_HOMES = {
    "EarlyStopping": "config",
    "Job": "job",
    "OptimiserConfig": "optimiser_config",
    "Recipe": "job",
    "Result": "launch",
    "Stage": "config",
    "TrainConfig": "config",
    "resume": "launch",
    "run": "launch",
}

__all__ = ["EarlyStopping", "Job", "OptimiserConfig", "Recipe", "Result", "Stage", "TrainConfig", "resume", "run"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"groupwise.train.{_HOMES[name]}"), name)
