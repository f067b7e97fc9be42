"""The layers of an experiment: slot defaults, then the method's preset, then the experiment file, then `key=value`.

Slots of the objective may be written with or without `objective.`; everything here brings them to one form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupwise.config import ConfigError, Problem, merge, nearest
from groupwise.objective import Objective

SLOTS = tuple(name for name in Objective.model_fields if name != "name")
"""The keys of the objective that may be written without `objective.`"""

Tree = dict[str, Any]


def lift(tree: Mapping[str, Any]) -> Tree:
    """The same table with the objective's slots below `objective`.

    Raises:
        ConfigError: a slot is written both ways with different values.

    Example:
        >>> lift({"seed": 1, "trust": {"kind": "clip"}, "objective": {"ratio": {"kind": "token"}}})
        {'seed': 1, 'objective': {'ratio': {'kind': 'token'}, 'trust': {'kind': 'clip'}}}
    """
    slots = {key: value for key, value in tree.items() if key in SLOTS}
    if not slots:
        return dict(tree)
    below = tree.get("objective", {})
    both = [key for key in slots if key in below and below[key] != slots[key]]
    if both:
        raise ConfigError(Problem(both[0], f"is written twice, as {both[0]} and as objective.{both[0]}; keep one"))
    return {**{key: value for key, value in tree.items() if key not in SLOTS}, "objective": {**below, **slots}}


def lay(tree: Tree, over: Mapping[str, Any]) -> Tree:
    """A lifted table with another laid on it; `stages.NAME.key` in the upper one reaches into the stage of that name.

    Raises:
        ConfigError: there is no stage of that name, or `train.num_steps` is set where the stages state their own.
    """
    over = dict(lift(over))
    stages = list(tree.get("stages") or [])
    changes = over.get("stages")
    if isinstance(changes, Mapping):
        names = tuple(str(stage.get("name")) for stage in stages)
        for name, change in changes.items():
            if name not in names or not isinstance(change, Mapping):
                raise ConfigError(Problem(f"stages.{name}", "there is no stage of this name", names, nearest(name, names)))
            index = names.index(name)
            change = dict(change)
            if isinstance(change.get("set"), Mapping):
                change["set"] = lift(change["set"])
            stages[index] = merge({**stages[index], "set": lift(stages[index].get("set", {}))}, change)
        over["stages"] = stages
    stages = over.get("stages", stages)
    if stages and isinstance(over.get("train"), Mapping) and "num_steps" in over["train"]:
        first = stages[-1].get("name")
        raise ConfigError(
            Problem("train.num_steps", f"has no effect: this experiment has stages, which state their own length; write stages.{first}.num_steps")
        )
    return merge(tree, over)


def resolve_objective(tree: Mapping[str, Any], source: str) -> Tree:
    """The same table with every slot of its objective stated: the method's preset, with what the table changes on top.

    Raises:
        ConfigError: no such method.
    """
    method = tree.get("method", "grpo")
    preset = preset_of(method, source).model_dump(mode="json")
    edits = tree.get("objective") or {}
    if not isinstance(edits, Mapping):
        raise ConfigError(Problem("objective", "must be a table of slots, for example [objective.trust]"), source=source)
    return {**tree, "method": method, "objective": merge(merge(preset, edits), {"name": method})}


def objective_edits(tree: Mapping[str, Any]) -> Tree:
    """The slots of a resolved objective that differ from the preset of its method: what stays when the method is exchanged."""
    preset = preset_table(tree["method"])
    return {key: value for key, value in tree["objective"].items() if key != "name" and value != preset.get(key)}


def preset_of(method: object, source: str) -> Objective:
    """A method by what stands for its name in a file.

    Raises:
        ConfigError: no such method.
    """
    if not isinstance(method, str):
        raise ConfigError(Problem(f"method = {method!r}", "must be the name of a preset; see `groupwise methods`"), source=source)
    return Objective.preset(method)


def preset_table(method: str) -> Tree:
    """Every slot of a method.

    Raises:
        ConfigError: no such method.
    """
    return Objective.preset(method).model_dump(mode="json")
