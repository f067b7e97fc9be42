"""From a name or a file and `key=value` items to an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.config import difference, fill_kinds, merge, parse_overrides
from groupwise.experiment.catalogue import find
from groupwise.experiment.layers import lay, lift, objective_edits, preset_of, preset_table, resolve_objective
from groupwise.experiment.schema import Experiment, read
from groupwise.objective import Objective


def load_experiment(name: str | Path, overrides: Sequence[str] | Mapping[str, Any] = ()) -> Experiment:
    """The experiment of this name or path, with changes.

    Layers, the later wins: defaults of the slots, the method's preset, the file, `overrides`. A run's `config.json` repeats the run.

    Args:
        name: a shipped experiment (`groupwise experiments`), a `.toml` file, a run folder or its `config.json`.
        overrides: `key=value` items, or a nested table.

    Raises:
        ConfigError: anything that is wrong with it, all at once, before anything is computed.

    Example:
        >>> experiment = load_experiment("language", ["method=dapo", "trust.high=0.3"])
        >>> experiment.objective.name, experiment.objective.trust.high
        ('dapo+edited', 0.3)
    """
    source = find(name)
    over = parse_overrides(overrides) if not isinstance(overrides, Mapping) else dict(overrides)
    label = str(name) if not over else f"{name} with {' '.join(overrides) if not isinstance(overrides, Mapping) else 'changes'}"
    method = over.get("method", source.tree.get("method", "grpo"))
    tree: dict[str, Any] = {}
    for layer in source.layers:
        tree = merge(tree, _with_kinds(layer, method, label))
    if source.resolved and over.get("method", tree.get("method")) != tree.get("method"):
        # A resolved file states every slot of its method; only what differs from that method is a wish of its own.
        tree["objective"] = objective_edits(tree)
    tree = lay(tree, over)
    tree.setdefault("name", source.name)
    return read(resolve_objective(tree, label), label)


def _with_kinds(layer: Mapping[str, Any], method: Any, source: str) -> dict[str, Any]:
    """A layer in which every table says its kind, so that a layer above that names the same kind keeps the keys beside it; a slot's is the method's."""
    tree = lift(layer)
    slots = tree.pop("objective", None)
    filled = fill_kinds(Experiment, tree)
    if slots is None:
        return filled
    return {**filled, "objective": fill_kinds(Objective, slots, preset_of(method, source)) if isinstance(slots, Mapping) else slots}


def edits(experiment: Experiment) -> dict[str, tuple[Any, Any]]:
    """What an experiment changed in its method: dotted key -> (the preset's value, its own)."""
    changed = difference(preset_table(experiment.method), experiment.objective.model_dump(mode="json"))
    changed.pop("name", None)
    return changed
