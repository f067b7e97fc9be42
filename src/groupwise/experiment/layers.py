"""The layers of an experiment: the method's preset, then the experiment's files, then `key=value`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import UnionType
from typing import Any

from groupwise.config import ConfigError, Problem, fill_kinds, merge, nearest, words_as_kinds
from groupwise.experiment.schema import Experiment
from groupwise.experiment.slots import Tree, in_sets, is_resolved, preset_slots
from groupwise.objective import Objective
from groupwise.objective.method import Layer, is_own, laid_to_methods
from groupwise.objective.preset import lineage, read_overlay

WRITTEN: UnionType = Experiment | Objective
"""The keys of a table that a person writes: those of an experiment, and at its top those of its objective."""


def stack(layers: Sequence[Mapping[str, Any]]) -> Tree:
    """Merges tables over each other and over the preset of their method; a later table wins.

    Every kind is stated before the next table is merged, so that a table which names the same kind again keeps the
    other keys. A list of stages replaces earlier stages; `stages.NAME.key` changes the stage of that name.

    Args:
        layers: tables in the form that a person writes, the lowest first; the first may be a run's.

    Raises:
        ConfigError: there is no method or no stage of that name.

    Example:
        >>> stack([{"stages": [{"name": "a", "num_steps": 8}]}, {"stages": {"a": {"num_steps": 2}}}])["stages"]
        [{'name': 'a', 'num_steps': 2}]
        >>> stack([{"method": "dapo"}, {"trust": {"low": 0.1}}])["trust"]
        {'kind': 'clip', 'low': 0.1, 'high': 0.28}
    """
    method = next((layer["method"] for layer in reversed(layers) if "method" in layer), "grpo")
    tree: Tree = {"method": method, **preset_slots(method)}
    for layer in layers:
        top_level = {key: value for key, value in layer.items() if key not in ("stages", "controls")}
        tree = fill_kinds(WRITTEN, tree)
        tree = merge(tree, words_as_kinds(WRITTEN, top_level, tree))
    # A `set` is merged over the keys at the top, so the kinds of these are settled first.
    top_level = tree
    for written_layer in layers:
        layer = in_sets(written_layer, lambda changes, _: words_as_kinds(WRITTEN, changes, top_level))
        tree = in_sets(tree, lambda changes, _: _with_kinds(changes, top_level))
        if "stages" in layer:
            tree["stages"] = _stages(tree.get("stages"), layer["stages"])
        if "controls" in layer:
            controls = merge(tree, {"controls": layer["controls"]}).get("controls")
            tree["controls"] = {} if controls is None else controls
    return tree


def _stages(below: Any, above: Any) -> Any:
    if not isinstance(above, Mapping):
        return above
    stages = below if isinstance(below, list | tuple) else []
    names = tuple(str(stage.get("name")) if isinstance(stage, Mapping) else "" for stage in stages)
    for name, change in above.items():
        if name not in names:
            advice = "" if names else "; write train.num_steps, or [[stages]] with a name and num_steps to make one"
            problem = Problem(f"stages.{name}", f"there is no stage of this name{advice}", names, nearest(name, names))
            raise ConfigError(problem)
        if not isinstance(change, Mapping):
            advice = f"must name a key of the stage; write for example stages.{name}.num_steps"
            raise ConfigError(Problem(f"stages.{name} = {change!r}", advice))
    return [merge(stage, above[name]) if name in above else stage for name, stage in zip(names, stages, strict=True)]


def _with_kinds(changes: Mapping[str, Any], top_level: Mapping[str, Any]) -> Tree:
    """Returns the table of a `set` with its kinds stated: those of its method, or else those at the top."""
    slots = preset_slots(changes["method"]) if "method" in changes else {}
    return fill_kinds(WRITTEN, changes, {**top_level, **slots})


def refuse_length(tables: Sequence[Mapping[str, Any]]) -> None:
    """Refuses a length of the whole run where stages state their own; a run's record may have both.

    Args:
        tables: as they are written, the lowest first.

    Raises:
        ConfigError: `train.num_steps` has no effect.

    Example:
        >>> refuse_length([{"train": {"num_steps": 3}}, {"stages": [{"name": "a", "num_steps": 2}]}])
    """
    stages: Sequence[Any] = ()
    for table in tables:
        stages = table["stages"] if isinstance(table.get("stages"), list | tuple) else stages
        train = table.get("train")
        if not stages or is_resolved(table) or not isinstance(train, Mapping) or "num_steps" not in train:
            continue
        names = [stage["name"] for stage in stages if isinstance(stage, Mapping) and "name" in stage]
        lengths = " or ".join(f"stages.{name}.num_steps" for name in dict.fromkeys(names[::-1]))
        message = (
            "has no effect: this experiment has stages, which state their own length; write"
            f" {lengths or 'num_steps in each of them'}, or remove the stages with stages=[]"
        )
        raise ConfigError(Problem(f"train.num_steps = {train['num_steps']}", message))


def unfold(layer: Mapping[str, Any], folder: Path) -> list[Tree]:
    """Replaces a layer whose method is a user's file by layers that name a published method. So a run records every
    slot, and can be resumed without the file.

    Args:
        layer: a table with the slots at its top.
        folder: the folder to which the path of a method's file is relative.

    Returns:
        the layers, the lowest first; only the layer itself where its method is a published one.

    Raises:
        ConfigError: no such file, or one that is no method's.

    Example:
        >>> unfold({"method": "dapo+tis", "seed": 1}, Path())
        [{'method': 'dapo+tis', 'seed': 1}]
    """
    layer = in_sets(layer, lambda table, _: _unfolded(table, folder))
    base, *overlays = str(layer.get("method", "")).split("+")
    if not is_own(base):
        return [layer]
    below, files = lineage(base, folder)
    # An overlay is merged over the whole method, so it replaces the slots of the files too.
    laid = {slot for overlay in overlays for slot in read_overlay(overlay).objective}
    slots = [{key: value for key, value in file.objective.items() if key not in laid} for file, _ in files]
    other_keys = {key: value for key, value in layer.items() if key != "method"}
    return [{"method": "+".join([below, *overlays])}, *slots, other_keys]


def _unfolded(table: Mapping[str, Any], folder: Path) -> Tree:
    """Returns the table of a `set` whose method is a file as one that names a published method."""
    tree: Tree = {}
    for layer in unfold(table, folder):
        tree = merge(tree, layer)
    return tree


# Where the keys of an experiment stand: in its own tables, or in the file of a user's method.

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
