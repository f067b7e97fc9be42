"""From a name or a file and `key=value` items to an experiment."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError, check_plain, difference, fill_kinds, only, parse_overrides, without_emptied
from groupwise.experiment.asked import ask, code_of, is_foreign, said_beside, said_by
from groupwise.experiment.catalogue import Source, find
from groupwise.experiment.layers import (
    is_resolved,
    lay,
    lift,
    objective_edits,
    preset_of,
    preset_table,
    resolve_objective,
    unfold,
)
from groupwise.experiment.outweighed import outweighed
from groupwise.experiment.schema import Experiment, read
from groupwise.experiment.spelling import as_written
from groupwise.objective import Objective
from groupwise.processes import is_first_process

log = logging.getLogger("groupwise")


def load_experiment(
    name: str | Path, overrides: Sequence[str] | Mapping[str, Any] = (), *, run_code: bool = False
) -> Experiment:
    """The experiment of this name or path, with changes.

    Layers, the later wins: defaults of the slots, the method's preset, the file, `overrides`. A run's `config.json`
    repeats the run.

    What lies in a run folder may be anybody's: the code that it names is asked about first
    (`groupwise.experiment.asked`). `overrides` are the user's word.

    Args:
        name: a shipped experiment (`groupwise experiments`), a `.toml` file, a run folder or its `config.json`.
        overrides: `key=value` items, or a nested table.
        run_code: the code that a run folder names may run; it is not asked about again.

    Returns:
        the experiment, every key stated.

    Raises:
        ConfigError: anything that is wrong with it, all at once, before anything is computed; code that is to be asked
            about.

    Example:
        >>> experiment = load_experiment("language", ["method=dapo", "trust.high=0.3"])
        >>> experiment.objective.name, experiment.objective.trust.high
        ('dapo+edited', 0.3)
    """
    return load_source(*_found(name, overrides), run_code=run_code)


def load_source(source: Source, over: Mapping[str, Any], label: str, *, run_code: bool = False) -> Experiment:
    """Reads an experiment that is written somewhere, with changes.

    Args:
        source: the experiment as it is written.
        over: a nested table of changes.
        label: what an error calls both.
        run_code: the code that a run folder names may run; it is not asked about again.

    Raises:
        ConfigError: as `load_experiment`.
    """
    # Nothing of somebody else's is imported before its user was asked: a trust region's class would be, as the
    # experiment is read.
    foreign = is_foreign(source)
    with only() if foreign else nullcontext():
        experiment = _read(source, over, label)
        code = code_of(experiment)
    ask([*([said_by(source, code, over)] if foreign else []), *said_beside(experiment)], run_code)
    if foreign and code:
        experiment = _read(source, over, label)
    for sentence in outweighed(experiment, over) if is_first_process() else ():
        log.warning("%s", sentence)
    return experiment


def read_experiment(name: str | Path, overrides: Sequence[str] | Mapping[str, Any] = ()) -> Experiment:
    """The same experiment, of which nothing is imported and nothing may be run: for what looks at a run folder, or
    takes a part out of it.

    Args:
        name: as for `load_experiment`.
        overrides: as for `load_experiment`.

    Raises:
        ConfigError: anything that is wrong with it.

    Example:
        >>> read_experiment("language").domain.kind
        'language'
    """
    with only():
        return _read(*_found(name, overrides))


def _found(name: str | Path, overrides: Sequence[str] | Mapping[str, Any]) -> tuple[Source, dict[str, Any], str]:
    source = find(name)
    over = parse_overrides(overrides) if not isinstance(overrides, Mapping) else dict(overrides)
    check_plain(over, "changes")
    label = (
        str(name)
        if not over
        else f"{name} with {' '.join(overrides) if not isinstance(overrides, Mapping) else 'changes'}"
    )
    return source, over, label


def _read(source: Source, over: Mapping[str, Any], label: str) -> Experiment:
    try:
        return _loaded(source, over, label)
    except ConfigError as error:
        raise as_written(error, (*source.layers, over), label) from None


def _loaded(source: Source, over: Mapping[str, Any], label: str) -> Experiment:
    folders = [*(file.parent for file in source.files), Path()]
    written = zip((*source.layers, over), folders, strict=True)
    layers = [part for layer, folder in written for part in unfold(lift(layer), folder)]
    method = next((layer["method"] for layer in reversed(layers) if "method" in layer), "grpo")
    if is_resolved(layers[0]) and layers[0].get("method", "grpo") != method:
        # A resolved file states every slot of its method; only what differs from that method is a wish of its own.
        layers[0] = {**layers[0], "objective": {"name": method, **objective_edits(layers[0])}}
    # What a stage or a control sets is laid on what holds outside, whose kinds must be known before its layers meet.
    outside = resolve_objective(_stacked(layers, method, {}, label), label)
    tree = _stacked(layers, method, outside, label)
    tree.setdefault("name", source.name)
    return read(resolve_objective(tree, label), label)


def _stacked(
    layers: Sequence[Mapping[str, Any]], method: object, outside: Mapping[str, Any], source: str
) -> dict[str, Any]:
    """Layers on each other, the lowest first. Before the next one is laid on it, a table says its kind, so that naming
    that kind again keeps its keys.
    """
    preset = preset_of(method, source)
    tree: dict[str, Any] = {}
    for layer in layers:
        tree = lay(_emptied(_with_kinds(tree, preset, outside), layer), layer)
    return tree


def _emptied(tree: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The table without the rewards, auxiliary terms, controls, ... of which the layer above says that there are none,
    inside stages and controls too.
    """
    kept = without_emptied(Experiment, tree, over)
    if isinstance(controls := kept.get("controls"), Mapping) and isinstance(changes := over.get("controls"), Mapping):
        kept["controls"] = {name: _emptied_inside(entry, changes.get(name)) for name, entry in controls.items()}
    if isinstance(kept.get("stages"), list) and isinstance(changes := over.get("stages"), Mapping):
        kept["stages"] = [
            _emptied_inside(entry, changes.get(entry.get("name"))) if isinstance(entry, Mapping) else entry
            for entry in kept["stages"]
        ]
    return kept


def _emptied_inside(entry: Any, over: Any) -> Any:
    """A stage or a control, whose `set` is another experiment's table."""
    below, above = (each.get("set") if isinstance(each, Mapping) else None for each in (entry, over))
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return entry
    return {**entry, "set": without_emptied(Experiment, below, lift(above)) if above else {}}


def _with_kinds(tree: Mapping[str, Any], preset: Objective, outside: Mapping[str, Any]) -> dict[str, Any]:
    """The table with every kind stated: a slot's is the method's, another's the default one, and inside a `set` the one
    that holds outside it.
    """
    filled = _filled(tree, preset, None)
    if isinstance(stages := filled.get("stages"), list | tuple):
        filled["stages"] = [_with_kinds_inside(stage, outside) for stage in stages]
    if isinstance(controls := filled.get("controls"), Mapping):
        filled["controls"] = {name: _with_kinds_inside(control, outside) for name, control in controls.items()}
    return filled


def _with_kinds_inside(entry: Any, outside: Mapping[str, Any]) -> Any:
    """A stage or a control whose `set` states its kinds."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("set"), Mapping):
        return entry
    changes = lift(entry["set"])
    slots = preset_of(changes["method"], "set") if "method" in changes else outside.get("objective")
    return {**entry, "set": _filled(changes, slots, outside)}


def _filled(
    tree: Mapping[str, Any], slots: Objective | Mapping[str, Any] | None, below: Mapping[str, Any] | None
) -> dict[str, Any]:
    filled = fill_kinds(Experiment, {key: value for key, value in tree.items() if key != "objective"}, below)
    if "objective" in tree:
        objective = tree["objective"]
        filled["objective"] = fill_kinds(Objective, objective, slots) if isinstance(objective, Mapping) else objective
    return filled


def edits(experiment: Experiment) -> dict[str, tuple[Any, Any]]:
    """What an experiment changed in its method: dotted key -> (the preset's value, its own).

    Args:
        experiment: read from anywhere.

    Example:
        >>> edits(load_experiment("language", ["method=dapo", "divergence.kind=none", "trust.high=0.3"]))["trust.high"]
        (0.28, 0.3)
    """
    changed = difference(preset_table(experiment.method), experiment.objective.model_dump(mode="json"))
    changed.pop("name", None)
    return changed
