"""Keys in errors, spelled as they were written: a slot may stand at the top of an experiment or below `objective`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from groupwise.config import ConfigError, Problem
from groupwise.experiment.layers import SLOTS

_KEY = re.compile(rf"(?<![\w.'\"\[])(?P<slot>{'|'.join(SLOTS)})(?=\.[a-z_])")


def as_written(error: ConfigError, layers: Sequence[Mapping[str, Any]], source: str) -> ConfigError:
    """The same error with `objective.` before the keys of slots that were written below it; elsewhere errors name slots without.

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
