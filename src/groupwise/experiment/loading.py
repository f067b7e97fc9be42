"""Loading of an experiment from a name or a file, with `key=value` changes.

`catalogue.find` reads the files, each with its table. `unfold` makes layers of a table, so that a method of the user's
own becomes a published one with the slots that it changes. `stack` lays the layers over the preset of their method, and
the `set` of every stage and control over the whole; `config.merge` states each kind on the way. `config.validate` reads
the table into an `Experiment`, whose `plan` holds its stages and controls as experiments of their own.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from groupwise import config
from groupwise.config import ConfigError, Problem
from groupwise.experiment import code_consent
from groupwise.experiment.catalogue import Source, find, shipped
from groupwise.experiment.counterparts import with_counterparts
from groupwise.experiment.schema import Experiment, edited_slots, preset_slots, refuse_kind, value_at
from groupwise.objective.method import is_own
from groupwise.objective.objective import Slots
from groupwise.objective.preset import lineage, objective_from, read_overlay
from groupwise.processes import is_first_process
from groupwise.runs.folder import RunFolder, require_known_version

log = logging.getLogger("groupwise")


def load_experiment(
    name: str | Path | Source, overrides: Sequence[str] | Mapping[str, Any] = (), *, run_code: bool = False
) -> Experiment:
    """Returns the experiment of a name or path, with changes.

    The layers, of which a later one wins, are the defaults of the slots, the method's preset, the file, and
    `overrides`. The `config.json` of a run repeats the run.

    A run folder may come from another person, so that code which it names needs consent
    (`groupwise.experiment.code_consent`). Code in `overrides` was named by the user and needs none.

    Args:
        name: a shipped experiment (`groupwise experiments`), a `.toml` file, a run folder or its `config.json`; or what
            `groupwise.experiment.catalogue.find` returned for one.
        overrides: `key=value` items, or a nested table.
        run_code: allows the code that a run folder names.

    Returns:
        the experiment, with every key stated.

    Raises:
        ConfigError: all mistakes of the experiment at once, before anything is computed; or code that needs consent.

    Example:
        >>> experiment = load_experiment("language", ["method=dapo", "trust.high=0.3"])
        >>> experiment.objective.name, experiment.objective.trust.high
        ('dapo+edited', 0.3)
    """
    return load_source(*_located(name, overrides), run_code=run_code)


def load_source(source: Source, over: Mapping[str, Any], label: str, *, run_code: bool = False) -> Experiment:
    """Reads an experiment from its files, with changes.

    Args:
        source: the experiment as its files state it.
        over: a nested table of changes.
        label: the name of the experiment with its changes in an error.
        run_code: allows the code that a run folder names.

    Raises:
        ConfigError: as `load_experiment`.
    """
    # Reading an experiment imports the classes that it names, a trust region's for example; `restrict_code` prevents
    # this until the user has given consent.
    foreign = code_consent.is_foreign(source)
    with config.restrict_code() if foreign else nullcontext():
        experiment = _read(source, over, label)
        code = code_consent.code_of(experiment)
    code_consent.require_consent(
        [
            *([code_consent.code_of_source(source, code, over)] if foreign else []),
            *code_consent.code_of_model_folders(experiment),
        ],
        run_code,
    )
    if foreign and code:
        experiment = _read(source, over, label)
    for sentence in (*_stage_overrides(experiment, over), *_rewards_of_others(source, over, experiment)):
        if is_first_process():
            log.warning("%s", sentence)
    return experiment


def _stage_overrides(experiment: Experiment, over: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each changed key that a sampling stage overrides, unless the changes set the stage's key
    as well. Supervised stages are left out: they usually have values of their own on purpose.
    """
    sentences: list[str] = []
    for key in config.flatten({key: value for key, value in over.items() if key not in ("stages", "controls")}):
        for stage, span in zip(experiment.stages, experiment.plan.stages, strict=False):
            place = f"stages.{stage.name}.set"
            changed = _states(value_at(over, place) or {}, key) or isinstance(over.get("stages"), list)
            if span.samples and not f".{key}".endswith(".kind") and _states(stage.set, key) and not changed:
                sentences.append(
                    f"{key}: stage {stage.name} sets its own, which holds there; write {place}.{key}=... as well"
                )
    return sentences


def _states(tree: Mapping[str, Any], key: str) -> bool:
    """Returns whether a table states a value at a key, above it or below it."""
    return any(f"{key}.".startswith(f"{own}.") or own.startswith(f"{key}.") for own in config.flatten(tree))


def _rewards_of_others(source: Source, over: Mapping[str, Any], experiment: Experiment) -> list[str]:
    """Says of which file each reward is, where a user's own rewards stand beside those of a file that his extends."""
    rewards = getattr(experiment.domain, "rewards", {})
    if not isinstance(rewards, Mapping):
        return []
    trained = [name for name, reward in rewards.items() if getattr(reward, "trains", True)]
    origins: dict[str, str] = {}
    for file, layer in (*((file.name, table) for file, table in source.layers), ("yours", over)):
        for name, table in (value_at(layer, "domain.rewards") or {}).items():
            # A table without a kind changes a key of a reward that another file named.
            if name in trained and (name not in origins or not isinstance(table, Mapping) or "kind" in table):
                origins.pop(name, None)
                origins[name] = file
    files = list(origins.values())
    if len(set(files)) < 2 or (source.name in shipped() and "yours" not in files):
        return []
    listed = ", ".join(f"{reward} ({file})" for reward, file in origins.items())
    inherited = next(reward for reward, file in origins.items() if file != files[-1])
    return [f'all rewards are trained on: {listed}; domain.rewards.{inherited} = "null" takes one away']


def read_experiment(
    name: str | Path, overrides: Sequence[str] | Mapping[str, Any] = (), *, allowed: Collection[str] = ()
) -> Experiment:
    """Returns the experiment of a name or path without importing the code that it names. Such an experiment cannot be
    run; it serves to look at a run folder, or to take a part out of it.

    Args:
        name, overrides: as for `load_experiment`.
        allowed: import paths of code that may be imported nevertheless.

    Raises:
        ConfigError: all mistakes of the experiment at once.

    Example:
        >>> read_experiment("language").domain.kind
        'language'
    """
    with config.restrict_code(allowed):
        return _read(*_located(name, overrides))


def _refuse_empty(over: Mapping[str, Any], below: Mapping[str, Any]) -> None:
    """Refuses a change to an empty table where there is one already: merged over it, it would change nothing."""
    for key, value in config.flatten(over).items():
        if value == {} and (table := value_at(below, key)):
            raise ConfigError(
                f"{key} = {{}}: an empty table changes nothing; write {key}=null to take away what is there"
                f" ({', '.join(map(str, list(table)[:5]))})"
            )


def _located(
    name: str | Path | Source, overrides: Sequence[str] | Mapping[str, Any]
) -> tuple[Source, dict[str, Any], str]:
    source = name if isinstance(name, Source) else find(name)
    if source.path.name == RunFolder(source.path.parent).config.name:
        require_known_version(RunFolder(source.path.parent))
    over = config.parse_overrides(overrides) if not isinstance(overrides, Mapping) else dict(overrides)
    config.check_plain(over, "changes")
    _refuse_empty(over, source.tree)
    shown = source.name if isinstance(name, Source) else str(name)
    changes = "changes" if isinstance(overrides, Mapping) else " ".join(overrides)
    return source, over, f"{shown} with {changes}" if over else shown


def _read(source: Source, over: Mapping[str, Any], label: str) -> Experiment:
    # Paths in the changes are relative to the working directory.
    written = [*((file.parent, table) for file, table in source.layers), (Path(), over)]
    try:
        refuse_length([table for _, table in written])
        layers = [layer for folder, table in written for layer in unfold(table, folder)]
        return config.validate(Experiment, {"name": source.name, **stack(layers)}, label)
    except ConfigError as error:
        raise with_counterparts(error, label) from None


def edits(experiment: Experiment) -> dict[str, tuple[Any, Any]]:
    """Returns the keys that an experiment changes in its method: dotted key -> (the preset's value, the experiment's).

    Example:
        >>> edits(load_experiment("language", ["method=dapo", "divergence.kind=none", "trust.high=0.3"]))["trust.high"]
        (0.28, 0.3)
    """
    return config.difference(
        preset_slots(experiment.method), experiment.model_dump(mode="json", include=set(Slots.model_fields))
    )


# The layers of an experiment: the method's preset, then the experiment's files, then `key=value`.


def stack(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
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
    for layer in layers:
        refuse_kind(layer, "")
    method = next((layer["method"] for layer in reversed(layers) if "method" in layer), "grpo")
    top: dict[str, Any] = {"method": method, **preset_slots(method)}
    for layer in layers:
        whole_run = {key: value for key, value in layer.items() if key not in ("stages", "controls")}
        top = config.merge(top, whole_run, Experiment)
    # A `set` is laid over the top-level keys, so their kinds must be known first.
    tree = dict(top)
    for layer in layers:
        if "stages" in layer:
            tree["stages"] = _stages(tree.get("stages"), layer["stages"], top)
        if "controls" in layer:
            tree["controls"] = _controls(tree.get("controls"), layer["controls"], top)
    return tree


def _in_sets(table: Mapping[str, Any], change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Returns the table with the `set` of every stage and control changed."""

    def changed(span: Any) -> Any:
        has_set = isinstance(span, Mapping) and isinstance(span.get("set"), Mapping)
        return {**span, "set": change(span["set"])} if has_set else span

    tree = dict(table)
    for key in ("stages", "controls"):
        if isinstance(spans := tree.get(key), Mapping):
            tree[key] = {name: changed(span) for name, span in spans.items()}
        elif isinstance(spans, list | tuple):
            tree[key] = [changed(span) for span in spans]
    return tree


def _stages(below: Any, above: Any, top: dict[str, Any]) -> Any:
    if not isinstance(above, Mapping):
        return [_span(None, stage, top) for stage in above] if isinstance(above, list | tuple) else above
    stages = below if isinstance(below, list | tuple) else []
    names = tuple(str(stage.get("name")) if isinstance(stage, Mapping) else "" for stage in stages)
    for name, change in above.items():
        if name not in names:
            advice = "" if names else "; write train.num_steps, or [[stages]] with a name and num_steps to make one"
            message = f"there is no stage of this name{advice}"
            raise ConfigError(Problem(f"stages.{name}", message, names, config.nearest(name, names)))
        if not isinstance(change, Mapping):
            advice = f"must name a key of the stage; write for example stages.{name}.num_steps"
            raise ConfigError(Problem(f"stages.{name} = {change!r}", advice))
    return [
        _span(stage, above[name], top) if name in above else stage for name, stage in zip(names, stages, strict=True)
    ]


def _controls(below: Any, above: Any, top: dict[str, Any]) -> Any:
    if not isinstance(above, Mapping):
        return {} if above is None else above
    below = below if isinstance(below, Mapping) else {}
    controls = {**below, **{name: _span(below.get(name), control, top) for name, control in above.items()}}
    return {name: control for name, control in controls.items() if control is not None}


def _span(below: Any, above: Any, top: dict[str, Any]) -> Any:
    """Lays a stage or a control over another. The kinds in its `set` are those of its method, or of the top level."""
    if not isinstance(above, Mapping):
        return above
    below = below if isinstance(below, Mapping) else {}
    laid = config.merge(below, above)
    if isinstance(laid.get("set"), Mapping):
        method = laid["set"].get("method")
        slots = {} if method is None else preset_slots(method)
        laid["set"] = config.merge(below.get("set") or {}, above.get("set", {}), Experiment, {**top, **slots})
    return laid


def is_record(table: Mapping[str, Any]) -> bool:
    """Returns whether a table is a run's `config.json`, which states every slot.

    Args:
        table: an experiment's table.

    Example:
        >>> is_record({"method": "grpo", "trust": "clip"}), is_record({"method": "grpo", **preset_slots("grpo")})
        (False, True)
    """
    return table.keys() >= set(Slots.model_fields)


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
        if not stages or is_record(table) or not isinstance(train, Mapping):
            continue
        length = next((key for key in ("num_steps", "num_epochs") if key in train), None)
        if length is None:
            continue
        names = [stage["name"] for stage in stages if isinstance(stage, Mapping) and "name" in stage]
        lengths = " or ".join(f"stages.{name}.{length}" for name in dict.fromkeys(names[::-1]))
        message = (
            "has no effect: this experiment has stages, which state their own length; write"
            f" {lengths or f'{length} in each of them'}, or remove the stages with stages=[]"
        )
        raise ConfigError(Problem(f"train.{length} = {train[length]}", message))


def unfold(table: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Returns the layers of a table. A method that is a user's file becomes layers that name a published method, so
    that a run records every slot and can be resumed without the file. Of a run's record only the slots that differ from
    its method stay, so that another method may be laid over it.

    Args:
        table: an experiment, a changed part of one, or the `set` of a stage.
        folder: the folder to which the path of a method's file is relative.

    Returns:
        the layers, the lowest first.

    Raises:
        ConfigError: no such file, or one that is not a sound method's.

    Example:
        >>> unfold({"method": "dapo+tis", "seed": 1}, Path())
        [{'method': 'dapo+tis', 'seed': 1}]
    """
    layer = _in_sets(table, lambda changes: _merged(unfold(changes, folder)))
    if is_record(layer):
        kept = edited_slots(layer)
        layer = {key: value for key, value in layer.items() if key in kept or key not in Slots.model_fields}
    base, *overlays = str(layer.get("method", "")).split("+")
    if not is_own(base):
        return [layer]
    # The file is validated alone first, so that errors name it.
    objective_from(str(folder / base) if base.endswith(".toml") else base, {})
    below, files = lineage(base, folder)
    # An overlay is merged over the whole method, so it replaces the slots of the files too.
    laid = {slot for overlay in overlays for slot in read_overlay(overlay).objective}
    slots = [{key: value for key, value in file.objective.items() if key not in laid} for file, _ in files]
    other_keys = {key: value for key, value in layer.items() if key != "method"}
    return [{"method": "+".join([below, *overlays])}, *slots, other_keys]


def _merged(layers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for layer in layers:
        tree = config.merge(tree, layer)
    return tree
