"""Group-relative policy optimisation for any stochastic policy.

Each name of this package is imported at its first use, so that the command line starts at once. Other packages add
names by the entry points `groupwise.names`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.config import Config
    from groupwise.domain.base import Domain
    from groupwise.experiment import Experiment, load_experiment
    from groupwise.experiment.from_python import resume, train
    from groupwise.experiment.loaded_run import load_run
    from groupwise.objective import Objective
    from groupwise.records import Rollouts, Scored

__all__ = [
    "Config",
    "Domain",
    "Experiment",
    "Objective",
    "Rollouts",
    "Scored",
    "Selector",  # pyright: ignore[reportUnsupportedDunderAll]
    "from_trl",  # pyright: ignore[reportUnsupportedDunderAll]
    "load_experiment",
    "load_run",
    "resume",
    "train",
]

_MODULE_OF_NAME = {
    "Config": "groupwise.config",
    "Domain": "groupwise.domain.base",
    "Experiment": "groupwise.experiment.schema",
    "Objective": "groupwise.objective",
    "Rollouts": "groupwise.records",
    "Scored": "groupwise.records",
    "load_experiment": "groupwise.experiment.loading",
    "load_run": "groupwise.experiment.loaded_run",
    "resume": "groupwise.experiment.from_python",
    "train": "groupwise.experiment.from_python",
}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF_NAME:
        return getattr(import_module(_MODULE_OF_NAME[name]), name)
    from groupwise.plugins import require

    return require(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
