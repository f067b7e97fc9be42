"""Errors about a key that a user's method states: they name its file, and the key in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError, Problem, states

Layer = tuple[Path | None, Mapping[str, Any]]
"""A table with slots at its top, and the file of the method that states it; None where no method of a user's does."""

_KEY = re.compile(r"\b[a-z_]+(?:\.\w+)+(?= = )")


def laid_to_methods(error: ConfigError, layers: Sequence[Layer]) -> ConfigError:
    """Returns the error with every problem laid to the method's file whose key it is about.

    Args:
        error: about the layers, merged.
        layers: the lowest first. A problem belongs to the highest one that states its key, or else the table around it.

    Example:
        >>> error = ConfigError(Problem("trust.hig = 0.3", "unknown key", ("low", "high")))
        >>> print(laid_to_methods(error, [(Path("mine.toml"), {"trust": {"hig": 0.3}}), (None, {"seed": 1})]))
        mine.toml: objective.trust.hig = 0.3: unknown key; allowed: low, high
    """
    return ConfigError([_laid(problem, layers) for problem in error.problems], source=error.source)


def _laid(problem: Problem, layers: Sequence[Layer]) -> Problem:
    key = problem.path.partition(" = ")[0]
    # A refused combination names its keys in its sentence; it is the experiment's where this states one of them.
    named = [key] if key else _KEY.findall(problem.message)
    pairs = [(name, path) for name in named if (path := _file(name, layers)) is not None]
    by_experiment = any(states(table, _parts(name)) for name in named for path, table in layers if path is None)
    if not pairs or (not key and by_experiment):
        return problem
    name, path = pairs[0]
    return replace(problem, path=f"{path}: objective.{problem.path or name}")


def _file(key: str, layers: Sequence[Layer]) -> Path | None:
    """Returns the file that states a key; where no layer states it, the file that states the table around it."""
    while key:
        for path, table in reversed(layers):
            if states(table, _parts(key)):
                return path
        key = key.rpartition(".")[0]
    return None


def _parts(key: str) -> list[str]:
    return re.split(r"[.\[]", key)
