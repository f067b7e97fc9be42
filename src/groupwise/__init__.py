"""Group-relative policy optimisation for any stochastic policy.

The names here are imported when they are first used, so that the command starts at once.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.config import Config
    from groupwise.domain.base import Domain
    from groupwise.domain.selection.selector import Selector
    from groupwise.experiment import Experiment, load_experiment
    from groupwise.experiment import run as train
    from groupwise.experiment.loaded import load_run
    from groupwise.objective import Objective
    from groupwise.records import Rollouts, Scored

__all__ = [
    "Config",
    "Domain",
    "Experiment",
    "Objective",
    "Rollouts",
    "Scored",
    "Selector",
    "load_experiment",
    "load_run",
    "train",
]

_PLACES = {
    "Config": "groupwise.config",
    "Domain": "groupwise.domain.base",
    "Experiment": "groupwise.experiment.schema",
    "Objective": "groupwise.objective",
    "Rollouts": "groupwise.records",
    "Scored": "groupwise.records",
    "Selector": "groupwise.domain.selection.selector",
    "load_experiment": "groupwise.experiment.loading",
    "load_run": "groupwise.experiment.loaded",
}


class _CallableRoom(ModuleType):
    """The room `groupwise.train`, which is also the verb: `groupwise.train(experiment)`."""

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        from groupwise.experiment.runner import run

        return run(*arguments, **settings)


class _Package(ModuleType):
    """This package. The import system hangs a room on it when the room is imported; the room `train` then learns to be
    called.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "train" and isinstance(value, ModuleType):
            value.__class__ = _CallableRoom
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name == "train":
        return import_module("groupwise.train")
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
