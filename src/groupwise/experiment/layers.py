"""The layers of an experiment: slot defaults, then the method's preset, then the experiment file, then `key=value`.

Slots of the objective may be written with or without `objective.`; everything here brings them to one form.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError, Problem, merge, nearest
from groupwise.experiment.source_names import in_our_names
from groupwise.objective import Objective
from groupwise.objective.method import is_own
from groupwise.objective.preset import lineage, read_overlay

SLOTS = tuple(name for name in Objective.model_fields if name != "name")
"""The keys of the objective that may be written without `objective.`"""

Tree = dict[str, Any]


def lift(tree: Mapping[str, Any]) -> Tree:
    """The same table with the objective's slots below `objective`, and source 002's keys under our names.

    Args:
        tree: an experiment's table as a person writes it.

    Raises:
        ConfigError: a slot is written both ways with different values.

    Example:
        >>> lift({"seed": 1, "trust": {"kind": "clip"}, "objective": {"ratio": {"kind": "token"}}})
        {'seed': 1, 'objective': {'ratio': {'kind': 'token'}, 'trust': {'kind': 'clip'}}}
    """
    tree = in_our_names(tree)
    slots = {key: value for key, value in tree.items() if key in SLOTS}
    if not slots:
        return tree
    below = tree.get("objective", {})
    if not isinstance(below, Mapping):
        raise ConfigError(Problem(f"objective = {below!r}", "must be a table of slots, for example [objective.trust]"))
    both = [key for key in slots if key in below and below[key] != slots[key]]
    if both:
        raise ConfigError(Problem(both[0], f"is written twice, as {both[0]} and as objective.{both[0]}; keep one"))
    return {**{key: value for key, value in tree.items() if key not in SLOTS}, "objective": {**below, **slots}}


def lay(tree: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """A lifted table with another laid on it; `stages.NAME.key` in the upper one reaches into the stage of that name.

    Args:
        tree: what lies below, lifted.
        over: what lies above; a list of stages replaces those below.

    Returns:
        A new table, lifted.

    Raises:
        ConfigError: there is no stage of that name, or `train.num_steps` is set where the stages state their own.

    Example:
        >>> lay({"stages": [{"name": "grpo", "num_steps": 80}]}, {"stages": {"grpo": {"num_steps": 20}}})
        {'stages': [{'name': 'grpo', 'num_steps': 20}]}
    """
    over = lift(over)
    if isinstance(controls := over.get("controls"), Mapping):
        over["controls"] = {name: _lift_set(control) for name, control in controls.items()}
    stages = list(tree["stages"]) if isinstance(tree.get("stages"), list | tuple) else []
    names = tuple(str(stage.get("name")) if isinstance(stage, Mapping) else "" for stage in stages)
    if isinstance(changes := over.get("stages"), Mapping):
        for name, change in changes.items():
            if name in names and not isinstance(change, Mapping):
                raise ConfigError(
                    Problem(
                        f"stages.{name} = {change!r}",
                        f"must name a key of the stage; write for example stages.{name}.num_steps",
                    )
                )
            if name not in names:
                advice = "" if names else "; write [[stages]] with a name and num_steps to make one"
                raise ConfigError(
                    Problem(f"stages.{name}", f"there is no stage of this name{advice}", names, nearest(name, names))
                )
            index = names.index(name)
            stages[index] = merge(_lift_set(stages[index]), _lift_set(change))
        over["stages"] = stages
    _refuse_length(over, over.get("stages", stages))
    return merge(tree, over)


def unfold(layer: Mapping[str, Any], folder: Path) -> list[Tree]:
    """Give a layer whose method is a user's file as layers that name a published one: a run states every slot, and goes
    on where the file is gone.

    Args:
        layer: lifted.
        folder: in which the path of a method's file begins.

    Returns:
        the layers, the lowest first; the layer alone where its method is a published one.

    Raises:
        ConfigError: no such file, or one that is no method's.

    Example:
        >>> unfold({"method": "dapo+tis", "seed": 1}, Path())
        [{'method': 'dapo+tis', 'seed': 1}]
    """
    if is_resolved(layer):
        return [dict(layer)]
    whole = {key: value for key, value in layer.items() if key != "method"}
    if isinstance(stages := whole.get("stages"), list | tuple):
        whole["stages"] = [_unfold_set(stage, folder) for stage in stages]
    elif isinstance(stages, Mapping):
        whole["stages"] = {name: _unfold_set(stage, folder) for name, stage in stages.items()}
    if isinstance(controls := whole.get("controls"), Mapping):
        whole["controls"] = {name: _unfold_set(control, folder) for name, control in controls.items()}
    method = layer.get("method")
    base, *overlays = method.split("+") if isinstance(method, str) else [""]
    if not is_own(base):
        return [{"method": method, **whole} if "method" in layer else whole]
    below, files = lineage(base, folder)
    # An overlay is laid on the whole method, the files' slots among it.
    laid = {slot for overlay in overlays for slot in read_overlay(overlay).objective}
    slots = [{key: value for key, value in file.objective.items() if key not in laid} for file in files]
    return [{"method": "+".join([below, *overlays])}, *({"objective": table} for table in slots), whole]


def _unfold_set(entry: Any, folder: Path) -> Any:
    """A stage or a control, whose `set` is another experiment's table."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("set"), Mapping):
        return entry
    if not is_own(str(entry["set"].get("method", "")).partition("+")[0]):
        return entry
    tree: Tree = {}
    for layer in unfold(lift(entry["set"]), folder):
        tree = merge(tree, layer)
    return {**entry, "set": tree}


def _lift_set(entry: Any) -> Any:
    """A stage or a control whose `set` is lifted."""
    return (
        {**entry, "set": lift(entry["set"])}
        if isinstance(entry, Mapping) and isinstance(entry.get("set"), Mapping)
        else entry
    )


def _refuse_length(over: Mapping[str, Any], stages: Any) -> None:
    """A length of the whole run is refused where stages state theirs; in a run's own `config.json` every key is
    written, and it stays.
    """
    train = over.get("train")
    if not stages or is_resolved(over) or not isinstance(train, Mapping) or "num_steps" not in train:
        return
    keys = [f"stages.{stage['name']}.num_steps" for stage in stages if isinstance(stage, Mapping) and "name" in stage]
    lengths = " or ".join(dict.fromkeys(keys[::-1])) or "num_steps in each of them"
    message = (
        f"has no effect: this experiment has stages, which state their own length; write {lengths}, or remove the"
        " stages with stages=[]"
    )
    raise ConfigError(Problem(f"train.num_steps = {train['num_steps']}", message))


def is_resolved(tree: Mapping[str, Any]) -> bool:
    """Whether a table is a run's `config.json`, in which every key is written and the objective carries its name.

    Args:
        tree: an experiment's table.

    Example:
        >>> is_resolved({"objective": {"name": "grpo"}}), is_resolved({"method": "grpo"})
        (True, False)
    """
    objective = tree.get("objective")
    return isinstance(objective, Mapping) and "name" in objective


def resolve_objective(tree: Mapping[str, Any], source: str) -> Tree:
    """The same table with every slot of its objective stated: the method's preset, with what the table changes on top.

    Args:
        tree: a lifted table.
        source: what an error calls it.

    Raises:
        ConfigError: no such method.

    Example:
        >>> resolve_objective({"method": "dapo", "objective": {"trust": {"high": 0.3}}}, "here")["objective"]["trust"]
        {'kind': 'clip', 'low': 0.2, 'high': 0.3}
    """
    method = tree.get("method", "grpo")
    preset = preset_of(method, source).model_dump(mode="json")
    edits = tree.get("objective") or {}
    if not isinstance(edits, Mapping):
        raise ConfigError(
            Problem("objective", "must be a table of slots, for example [objective.trust]"), source=source
        )
    return {**tree, "method": method, "objective": merge(merge(preset, edits), {"name": method})}


def objective_edits(tree: Mapping[str, Any]) -> Tree:
    """The slots of a resolved objective that differ from the preset of its method: what stays when the method is
    exchanged.

    Args:
        tree: a table with every slot stated.

    Example:
        >>> objective_edits(resolve_objective({"method": "dapo", "objective": {"entropy": 0.1}}, "here"))
        {'entropy': 0.1}
    """
    preset = preset_table(tree["method"])
    return {key: value for key, value in tree["objective"].items() if key != "name" and value != preset.get(key)}


def preset_of(method: object, source: str) -> Objective:
    """A method by what stands for its name in a file.

    Args:
        method: what stands behind `method =`.
        source: what an error calls the file.

    Raises:
        ConfigError: no such method.

    Example:
        >>> preset_of("dapo", "a.toml").name
        'dapo'
    """
    if not isinstance(method, str):
        raise ConfigError(
            Problem(f"method = {method!r}", "must be the name of a preset; see `groupwise methods`"), source=source
        )
    return Objective.preset(method)


def preset_table(method: str) -> Tree:
    """Every slot of a method.

    Args:
        method: its name.

    Raises:
        ConfigError: no such method.

    Example:
        >>> preset_table("grpo")["ratio"]["kind"]
        'token'
    """
    return Objective.preset(method).model_dump(mode="json")
