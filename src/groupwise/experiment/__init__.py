"""Experiments: their schema, their files, their runs and their comparisons. A name is imported at its first use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.experiment.loading import load_experiment
    from groupwise.experiment.runner import run
    from groupwise.experiment.schema import Control, Experiment

_PLACES = {"Control": "schema", "Experiment": "schema", "load_experiment": "loading", "run": "runner"}

__all__ = ["Control", "Experiment", "load_experiment", "run"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
