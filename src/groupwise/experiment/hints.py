"""Errors about unknown keys, with the counterpart of a key that another system has."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.config import ConfigError, Problem
from groupwise.experiment.counterparts import counterparts


def with_counterparts(error: ConfigError, layers: Sequence[Mapping[str, Any]], source: str) -> ConfigError:
    """Returns the error with a hint for every unknown key that another system has.

    Args:
        error: an error about the layers.
        layers: tables as people wrote them, the lowest first.
        source: the name of the layers, for an error that has none.

    Example:
        >>> error = ConfigError(Problem("train.epsilon = 0.2", "unknown key", ("num_steps",)))
        >>> print(with_counterparts(error, [], "a.toml"))
        a.toml: train.epsilon = 0.2: unknown key; source 002's train.epsilon=0.2 is written trust.kind=clip trust.low=0.2 trust.high=0.2 here
    """  # noqa: E501
    return ConfigError([_answered(problem, layers) for problem in error.problems], source=error.source or source)


def _answered(problem: Problem, layers: Sequence[Mapping[str, Any]]) -> Problem:
    key, _, value_text = problem.path.partition(" = ")
    if problem.message != "unknown key" or (problem.suggestion or "").rpartition(".")[2] == key.rpartition(".")[2]:
        return problem
    answer = counterparts(key, _value(key, value_text, layers))
    if answer is None:
        return problem
    # Inside a table the user may have meant a neighbouring key, unless the answer says what to write.
    allowed = problem.allowed if "." in key and " is written " not in answer else ()
    return Problem(problem.path, f"{problem.message}; {answer}", allowed)


def _value(key: str, value_text: str, layers: Sequence[Mapping[str, Any]]) -> Any:
    """Returns the value of a key as the error quotes it, or as the last layer states it where the quotation is cut."""
    try:
        return json.loads(value_text)
    except ValueError:
        values = [layer[key] for layer in layers if key in layer]
        return values[-1] if values else None
