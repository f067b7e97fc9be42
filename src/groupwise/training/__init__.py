"""Training: the room of a run (`run/`), the room of a step (`step/`), and the configuration of both.

Nothing is imported before it is used, so that configurations load fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.training.config import EarlyStopping, Stage, TrainConfig
    from groupwise.training.job import Job, Recipe
    from groupwise.training.optimiser_config import OptimiserConfig
    from groupwise.training.run.launch import Result, resume, train

_HOMES = {
    "EarlyStopping": "config",
    "Job": "job",
    "OptimiserConfig": "optimiser_config",
    "Recipe": "job",
    "Result": "run.launch",
    "Stage": "config",
    "TrainConfig": "config",
    "resume": "run.launch",
    "train": "run.launch",
}

__all__ = ["EarlyStopping", "Job", "OptimiserConfig", "Recipe", "Result", "Stage", "TrainConfig", "resume", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"groupwise.training.{_HOMES[name]}"), name)
