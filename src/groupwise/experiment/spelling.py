"""Keys in errors: a slot is spelled as it was written, at the top of an experiment or below `objective`; another
system's key is answered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from groupwise.config import ConfigError, Problem
from groupwise.experiment.counterparts import counterparts
from groupwise.experiment.layers import SLOTS

_KEY = re.compile(rf"(?<![\w.'\"\[])(?P<slot>{'|'.join(SLOTS)})(?=\.[a-z_])")


def as_written(error: ConfigError, layers: Sequence[Mapping[str, Any]], source: str) -> ConfigError:
    """The same error with `objective.` before the keys of slots that were written below it, where elsewhere errors name
    slots without; and other systems' keys answered.

    Args:
        error: about the layers.
        layers: tables as people wrote them, the lowest first.
        source: what the error calls them, where it does not say.

    Example:
        >>> error = ConfigError(Problem("trust.high = -1", "must be greater than 0"))
        >>> print(as_written(error, [{"objective": {"trust": {"high": -1}}}], "a.toml"))
        a.toml: objective.trust.high = -1: must be greater than 0
        >>> print(as_written(error, [{"trust": {"high": -1}}], "a.toml"))
        a.toml: trust.high = -1: must be greater than 0
    """
    error = ConfigError([_answered(problem, layers) for problem in error.problems], source=error.source)
    last = {slot: below for layer in layers for slot, below in _written(layer)}
    below = {slot for slot, there in last.items() if there}

    def spelled(problem: Problem) -> Problem:
        path, message = problem.path, problem.message
        if re.split(r"[. =]", path)[0] in below:
            path = f"objective.{path}"
        elif not path and message.split(" ")[0] in below:
            message = f"objective.{message}"
        message = _KEY.sub(lambda found: f"objective.{found[0]}" if found["slot"] in below else found[0], message)
        return Problem(path, message, problem.allowed, problem.suggestion)

    return ConfigError([spelled(problem) for problem in error.problems], source=error.source or source)


def _answered(problem: Problem, layers: Sequence[Mapping[str, Any]]) -> Problem:
    """An unknown key that another system has is answered with what it is called here, in place of the names that are
    most like it.
    """
    key, _, shown = problem.path.partition(" = ")
    if problem.message != "unknown key" or (problem.suggestion or "").rpartition(".")[2] == key.rpartition(".")[2]:
        return problem
    told = counterparts(key, _value(key, shown, layers))
    if told is None:
        return problem
    # Inside a table the names beside a key may be what was meant, unless it is said what to write.
    return Problem(
        problem.path, f"{problem.message}; {told}", problem.allowed if "." in key and " is written " not in told else ()
    )


def _value(key: str, shown: str, layers: Sequence[Mapping[str, Any]]) -> Any:
    """The value of a key: as the error shows it, or where that is cut, as the last layer has it."""
    try:
        return json.loads(shown)
    except ValueError:
        values = [layer[key] for layer in layers if key in layer]
        return values[-1] if values else None


def _written(tree: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Slots in the order they are written, each with whether it stands below `objective`."""
    yield from ((key, False) for key in tree if key in SLOTS)
    if isinstance(objective := tree.get("objective"), Mapping):
        yield from ((key, True) for key in objective)
    stages, controls = tree.get("stages"), tree.get("controls")
    for entry in (*_entries(stages), *_entries(controls)):
        if isinstance(entry, Mapping) and isinstance(entry.get("set"), Mapping):
            yield from _written(entry["set"])


def _entries(value: Any) -> Sequence[Any]:
    return list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else []
