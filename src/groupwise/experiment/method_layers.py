"""Where the keys of an experiment stand: in its own tables, or in the file of a user's method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError, Problem
from groupwise.objective.method import is_own
from groupwise.objective.method_faults import Layer, laid_to_methods
from groupwise.objective.preset import lineage

_SPANS = ("stages", "controls")


def with_method_files(error: ConfigError, tables: Sequence[Mapping[str, Any]], folders: Sequence[Path]) -> ConfigError:
    """Returns the error of an experiment with the problems of users' methods laid to their files.

    Args:
        error: about the tables.
        tables: with the slots at their top, the lowest first.
        folders: to which the paths in each table are relative.
    """
    if not any(_methods(table) for table in tables):
        return error
    return ConfigError([_of_span(problem, tables, folders) for problem in error.problems], source=error.source)


def _of_span(problem: Problem, tables: Sequence[Mapping[str, Any]], folders: Sequence[Path]) -> Problem:
    """Lays a problem to the methods at the top, and to those in the `set` of the stage or control that it is about."""
    layers = [layer for table, folder in zip(tables, folders, strict=True) for layer in _layers(table, folder)]
    # The sentence of a stage or control begins with its name.
    span, colon, sentence = problem.message.partition(": ")
    if problem.path or not colon or span.partition(".")[0] not in _SPANS:
        span, sentence = "", problem.message
    if span:
        layers += [
            layer
            for table, folder in zip(tables, folders, strict=True)
            if (changes := _changes(table, span))
            for layer in _layers(changes, folder)
        ]
    (laid,) = laid_to_methods(ConfigError(replace(problem, message=sentence)), layers).problems
    if laid.path == problem.path:
        return problem
    return replace(laid, path=f"{span}: {laid.path}" if span else laid.path)


def _layers(table: Mapping[str, Any], folder: Path) -> list[Layer]:
    """Returns what the methods of a table state, and then what it states itself."""
    base = str(table.get("method", "")).partition("+")[0]
    files = lineage(base, folder)[1] if is_own(base) else []
    return [*((path, file.objective) for file, path in files), (None, table)]


def _methods(table: Mapping[str, Any]) -> bool:
    """Returns whether a table, or a `set` in it, names a method of a user's own."""
    named = [table, *(_changes(table, f"{key}.{name}") for key in _SPANS for name in _names(table.get(key)))]
    return any(is_own(str(changes.get("method", "")).partition("+")[0]) for changes in named)


def _names(spans: Any) -> list[str]:
    if isinstance(spans, Mapping):
        return [str(name) for name in spans]
    return [str(span.get("name")) for span in spans if isinstance(span, Mapping)] if isinstance(spans, list) else []


def _changes(table: Mapping[str, Any], span: str) -> Mapping[str, Any]:
    """Returns the `set` of a stage or control in a table; empty where it has none."""
    key, _, name = span.partition(".")
    spans = table.get(key)
    if isinstance(spans, list):
        spans = {str(entry.get("name")): entry for entry in spans if isinstance(entry, Mapping)}
    entry = spans.get(name) if isinstance(spans, Mapping) else None
    changes = entry.get("set") if isinstance(entry, Mapping) else None
    return changes if isinstance(changes, Mapping) else {}
