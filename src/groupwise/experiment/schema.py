"""The schema of an experiment, which joins the configurations of all rooms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, final

from pydantic import AfterValidator, BaseModel, Field, model_validator

from groupwise.checkpoint.config import CheckpointConfig
from groupwise.config import (
    Config,
    ConfigError,
    Problem,
    check_plain,
    json_schema,
    merge,
    nearest,
    states,
    validate,
    words_as_kinds,
)
from groupwise.config.errors import PerStep, Seed
from groupwise.domain.kinds import AnyDomainConfig
from groupwise.domain.protocol import CONSISTENCY
from groupwise.experiment.object_record import ObjectRecord
from groupwise.experiment.slots import SLOTS, below_objective, preset_slots, without_preset, written
from groupwise.objective import Objective
from groupwise.reference import ReferenceConfig, resolve_reference
from groupwise.track.config import TrackConfig
from groupwise.training.config import Stage, TrainConfig
from groupwise.training.optimiser_config import AnyOptimiser, OptimiserConfig

_LONGEST_NAME = 128
"""Bytes. File systems allow 255, and a seed, a time and the suffix of an unfinished write are added to the name."""


def _folder_name(name: str) -> str:
    if not name.strip() or name.startswith(".") or not name.isprintable() or any(sign in name for sign in "/\\"):
        raise ValueError(f"{name!r} cannot be the name of a folder; write letters, digits, spaces, - and _")
    if len(name.encode()) > _LONGEST_NAME:
        raise ValueError(
            f"{name[:40]!r}... has {len(name.encode())} bytes, and a folder's name of ours at most {_LONGEST_NAME};"
            " write a shorter one"
        )
    return name


FolderName = Annotated[str, AfterValidator(_folder_name)]
"""A name that a folder in `runs/` or `controls/` may have."""

_WHOLE_RUN = (
    *("stages", "start", "controls", "comparison", "seed"),
    *("name", "description", "track", "checkpoint", "objects"),
)


@final
class Control(Config):
    """A baseline for the result: a run with the same start, the same seconds, and other settings in training.

    Args:
        description: one sentence for the table at the end of a run.
        set: keys of the experiment and their values, merged over every stage from the first that samples.

    Example:
        >>> Control(set={"policy_weight": 0.0}).description
        ''
    """

    description: str = ""
    set: dict[str, Any] = Field(default_factory=dict)


@final
class ComparisonConfig(Config):
    """The comparison that `groupwise compare EXPERIMENT` runs without `--vary`.

    Args:
        vary: `key=a,b` items; every combination is a variant, and all others are compared with the first.
        seeds: the number of seeds that each variant is run with.
        first_seed: the first seed; the others follow it.
        show: further metrics of evaluations for the table: their means over seeds at the end of the runs.

    Example:
        >>> ComparisonConfig(vary=["method=grpo,dapo"]).seeds
        3
    """

    vary: list[str]
    seeds: PerStep = 3
    first_seed: Seed = 0
    show: list[str] = Field(default_factory=list)


@final
class Experiment(Config):
    """A method on a domain with a budget.

    A group baseline needs a group: `train.group_size` of at least 2 whenever a policy term is active and the advantage
    compares the members of a group. A reference is there exactly where a term reads it.

    Args:
        name: the experiment's name in run folders and tables.
        description: one sentence, shown by `groupwise experiments`.
        method: a preset, with overlays joined by `+`; see `groupwise methods`.
        seed: the seed of every random number in the run.
        objective: the method with the changes to it, every slot stated.
        domain: the model, its data, its rewards and its sampling.
        reference: the policy with which the trained policy is compared; unset, a frozen one where the objective needs a
            reference, and none otherwise.
        train: the budget of a step and of the run.
        optimiser: the rule by which a step changes the weights.
        start: the folder of an earlier run: this one begins with the weights with which the warm-up of that run (its
            leading stages that sample nothing) ended, and leaves out its own leading stages of the same names.
        stages: spans of steps in which some keys differ; without any, the run is one stage of `train.num_steps`.
        controls: baselines for the result, by name; the first one's result is the `baseline` of the summary.
        comparison: the comparison for which the experiment was made.
        checkpoint: the contents and the interval of checkpoints, from which a run is resumed.
        track: the places to which every step is reported.
        objects: objects that a program handed to `groupwise.train` and that no key describes, by name; a run writes
            their records, and a resume asks for the objects again.

    Example:
        >>> from groupwise import load_experiment
        >>> experiment = load_experiment("language", ["method=dapo", "seed=3"])
        >>> experiment.objective.name, [span.name for span in experiment.spans]
        ('dapo', ['warm_up', 'grpo'])
    """

    name: FolderName = "custom"
    description: str = ""
    method: str = "grpo"
    seed: Seed = 0
    objective: Objective = Field(default_factory=lambda data: Objective.preset(data.get("method", "grpo")))
    domain: AnyDomainConfig
    reference: ReferenceConfig | None = None
    train: TrainConfig = TrainConfig()
    optimiser: AnyOptimiser = OptimiserConfig()
    start: str | None = None
    stages: tuple[Stage, ...] = ()
    controls: dict[FolderName, Control] = Field(default_factory=dict)
    comparison: ComparisonConfig | None = None
    checkpoint: CheckpointConfig = CheckpointConfig()
    track: TrackConfig = TrackConfig()
    objects: dict[str, ObjectRecord] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sound(self) -> Experiment:
        if self.samples and not self.stages and self.objective.advantage.group_baseline and self.train.group_size < 2:
            raise ValueError(
                f"train.group_size = {self.train.group_size}: advantage.kind = {self.objective.advantage.kind!r}"
                " compares the members of a group, and a group of one always gets advantage 0; write train.group_size"
                " = 2 or more"
            )
        if self.samples and not self.stages:
            objective = self.objective
            resolve_reference(
                self.reference,
                required=objective.needs_reference
                or CONSISTENCY in objective.auxiliary
                or self.train.l2_to_reference > 0,
            )
        names = [stage.name for stage in self.stages]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"stages: two are named {name!r}; each needs a name of its own")
        # Every stage is read at once, so that a mistake in the last one is reported before hours of the first.
        spans = self.spans
        if self.controls and not any(span.samples for span in spans):
            reason = "they replace what samples, and no stage does (policy_weight is 0 in all)"
            raise ValueError(f"controls: {reason}; remove [controls], or write controls=null behind the command")
        for name in self.controls:
            self.control(name)
        return self

    @property
    def samples(self) -> bool:
        """True where a policy term is active at any step."""
        return self.objective.policy_weight.may_be_positive()

    @property
    def spans(self) -> list[Experiment]:
        """The stages in order, each as the experiment that holds during it, with `train.num_steps` its length and no
        stages of its own.
        """
        return list(self._stage_spans) if self.stages else [self]

    @cached_property
    def _stage_spans(self) -> list[Experiment]:
        return [
            self._changed(f"stages.{stage.name}", stage.set, stage.num_steps, name=stage.name) for stage in self.stages
        ]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Experiment:
        """Copies as pydantic does. The copy reads spans of its own, since its keys may be others."""
        copied = super().model_copy(update=update, deep=deep)
        vars(copied).pop("_stage_spans", None)
        return copied

    def control(self, name: str) -> list[Experiment]:
        """Returns the stages of a control: those from the first that samples, with the control's changes merged over
        them.

        A control that names a method takes the method's preset: changes of the experiment's own objective do not apply.

        Returns:
            one experiment a stage.
        """
        spans = self.spans
        first_sampling = next(index for index, span in enumerate(spans) if span.samples)
        changes = self.controls[name].set
        if "method" in changes:
            spans = [span.model_copy(update={"objective": Objective.preset(span.method)}) for span in spans]
        return [span._changed(f"controls.{name}", changes) for span in spans[first_sampling:]]

    def _changed(self, source: str, changes: dict[str, Any], num_steps: int | None = None, **more: str) -> Experiment:
        table = written(self.table())
        changes = words_as_kinds(Experiment | Objective, written(changes), table)
        self._refuse(source, [key for key in _WHOLE_RUN if key in changes])
        if (
            isinstance(domain := changes.get("domain"), dict)
            and domain.get("kind", self.domain.kind) != self.domain.kind
        ):
            self._refuse(source, ["domain.kind"])
        if isinstance(train := changes.get("train"), dict) and "num_steps" in train:
            advice = (
                f"write {source}.num_steps"
                if source.startswith("stages.")
                else "a control trains for as long as the stages it replaces; remove it"
            )
            raise ConfigError(Problem(f"{source}.set.train.num_steps", f"has no effect; {advice}"))
        tree = {**table, "start": None, "stages": [], "controls": {}, **more}
        if num_steps is not None:
            tree["train"]["num_steps"] = num_steps
        if changes.get("method", self.method) != self.method:
            tree = {**preset_slots(changes["method"]), **without_preset(tree)}
        span = read(merge(tree, changes), source)
        self._refuse(
            source,
            [
                f"train.{key}"
                for key in ("device", "num_threads", "deterministic")
                if getattr(span.train, key) != getattr(self.train, key)
            ],
        )
        self._refuse(
            source,
            [
                f"domain.{key}"
                for key in sorted(self.domain.whole_run)
                if getattr(span.domain, key) != getattr(self.domain, key)
            ],
        )
        return span

    def _refuse(self, source: str, keys: list[str]) -> None:
        """Refuses keys in the `set` of a stage or control that only the experiment itself may set."""
        if keys:
            raise ConfigError(
                [
                    Problem(
                        f"{source}.set.{key}", "belongs to the whole run and cannot differ inside it; set it outside"
                    )
                    for key in keys
                ]
            )

    def table(self) -> dict[str, Any]:
        """Returns every key and its value, as `config.json` holds them; `objects` only where there are some."""
        return self.model_dump(mode="json", exclude=None if self.objects else {"objects"})


def read(tree: dict[str, Any], source: str) -> Experiment:
    """Returns an experiment from a table with every slot at its top. Its objective has the name of the method, with
    `+edited` where a slot differs from the preset.

    Args:
        tree: an experiment's table in the form that a person writes.
        source: the name of the table in an error.

    Raises:
        ConfigError: all mistakes of the table at once.
    """
    try:
        experiment = validate(Experiment, below_objective(tree), source)
    except ConfigError as error:
        raise ConfigError([_short(problem) for problem in error.problems], source=source) from None
    preset = Objective.preset(experiment.method)
    same = experiment.objective.model_copy(update={"name": preset.name}) == preset
    objective = experiment.objective.model_copy(update={"name": preset.name if same else f"{preset.name}+edited"})
    named = experiment.model_copy(update={"objective": objective})
    if named.stages:
        # The stages, which its validation has read, name their objectives themselves.
        vars(named)["_stage_spans"] = experiment._stage_spans
    return named


def file_schema() -> dict[str, Any]:
    """Returns the JSON schema of an experiment *file*: slots of the objective stand at the top, and every key may be
    left out, since the extended file or a default states it.

    A table without `kind` has the kind of the extended file, so that it is valid where it fits any kind: names and
    types are checked, completeness is not.

    Example:
        >>> schema = file_schema()
        >>> "trust" in schema["properties"], "required" in schema
        (True, False)
    """
    schema = json_schema(Experiment, title="Groupwise experiment")
    slots = {slot: table for slot, table in schema["$defs"]["Objective"]["properties"].items() if slot != "name"}
    del schema["properties"]["objective"]
    extends = {
        "type": "string",
        "description": "An experiment, by name or path, of which this file writes only the differences.",
    }
    stages = schema["properties"]["stages"]
    by_name = {
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/Stage"},
        "description": "Changes of stages of the experiment below, by name.",
    }
    schema["properties"] = {
        "extends": extends,
        **schema["properties"],
        **slots,
        "stages": {"anyOf": [stages, by_name], "description": stages["description"]},
    }
    return _partial(schema)


def _partial(schema: Any) -> Any:
    """Returns the schema without required keys, for tables that may be incomplete."""
    if isinstance(schema, list):
        return [_partial(subschema) for subschema in schema]
    if not isinstance(schema, dict):
        return schema
    partial = {
        key: _partial(value)
        for key, value in schema.items()
        if not (key == "required" and isinstance(value, list)) and key != "discriminator"
    }
    if "oneOf" in partial:
        # Without its kind a table may be of several.
        partial["anyOf"] = partial.pop("oneOf")
    return partial


def _short(problem: Problem) -> Problem:
    # A message about the objective as a whole begins with the name of a slot.
    names_itself = problem.path == "objective" and problem.message.split(" ")[0].split(".")[0] in Objective.model_fields
    path = "" if names_itself else problem.path.removeprefix("objective.")
    suggestion = problem.suggestion and problem.suggestion.removeprefix("objective.")
    key = path.split(" ")[0]
    if problem.message == "unknown key" and "." not in key and key == problem.path.split(" ")[0]:
        allowed = (*(name for name in problem.allowed if name != "objective"), *SLOTS)
        # Where a table has a key of this name, the user probably meant that key.
        elsewhere = suggestion if suggestion and "." in suggestion else None
        return Problem(path, problem.message, allowed, elsewhere or nearest(key, allowed))
    message = problem.message.replace(" objective.", " ")
    return Problem(path, message, problem.allowed, suggestion)


# Keyword arguments of `groupwise.train` as the nested table of changes that an experiment takes.

_DEEPEST = 64


def nested_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns changes as nested tables: `{"train.num_steps": 3}` and `train=dict(num_steps=3)` say the same.

    Args:
        changes: keys of an experiment, dotted or nested, with their values.

    Raises:
        ConfigError: a value of a type that no configuration holds, or a key that is written twice.

    Example:
        >>> nested_changes({"train.num_steps": 3, "train": {"group_size": 4}, "seed": 1})
        {'train': {'num_steps': 3, 'group_size': 4}, 'seed': 1}
    """
    tree: dict[str, Any] = {}
    for key, value in changes.items():
        _lay(tree, key.split("."), _plain(value, key), key)
    check_plain(tree, "changes")
    return tree


def _lay(tree: dict[str, Any], path: list[str], value: Any, key: str) -> None:
    """Writes a value below a path; tables are joined, and a value beside another one of the same key is refused."""
    if not all(path):
        raise ConfigError(f"the key {key!r} cannot be read; write names joined by dots, for example 'train.num_steps'")
    node = tree
    for name in path[:-1]:
        # A word is the kind of its table: `{"trust": "gaussian", "trust.sigma": 0.3}`.
        if isinstance(word := node.setdefault(name, {}), str):
            node[name] = {"kind": word}
        node = node[name]
        if not isinstance(node, dict):
            raise ConfigError(f"{key}: {name!r} is a value in another argument and a table here; write it once")
    if path[-1] not in node:
        node[path[-1]] = value
    elif isinstance(node[path[-1]], dict) and isinstance(value, str):
        _lay(node, [path[-1], "kind"], value, key)
    elif isinstance(node[path[-1]], dict) and isinstance(value, dict):
        for name, inner in value.items():
            _lay(node[path[-1]], [name], inner, f"{key}.{name}")
    else:
        raise ConfigError(f"{key}: is written twice, {node[path[-1]]!r} and {value!r}; write it once")


def _plain(value: Any, key: str, depth: int = 0) -> Any:
    """Returns a value as a configuration holds it: tables, lists, texts, numbers, flags, None."""
    if depth > _DEEPEST:
        raise ConfigError(f"{key}: tables and lists lie deeper inside each other than {_DEEPEST} levels; write fewer")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(name): _plain(inner, f"{key}.{name}", depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, f"{key}[{place}]", depth + 1) for place, inner in enumerate(value)]
    if callable(getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:
        return value.item()
    raise ConfigError(
        f"{key}: an object of type {type(value).__qualname__} was given; a setting is a number, a text, a flag, None, a"
        " list or a dict; functions go to rewards= or callbacks=, rows to data="
    )


# Keys that the user changes for the whole run and a stage overrides: legal, and easily overlooked.


def stage_overrides(experiment: Experiment, over: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each changed key that a sampling stage overrides, unless the changes set the stage's key
    as well.

    Supervised stages are left out: they usually have values of their own on purpose.

    Args:
        experiment: the experiment with the changes.
        over: the changes, as a person writes them.

    Example:
        >>> from groupwise.experiment import load_experiment
        >>> over = {"train": {"max_grad_norm": 0.1}}
        >>> stage_overrides(load_experiment("source_001_progressive", over), over)
        ['train.max_grad_norm: stage full sets its own, which holds there; write stages.full.set.train.max_grad_norm=... as well']
    """  # noqa: E501
    changes = {key: value for key, value in over.items() if key not in ("stages", "controls")}
    sampling = [stage for stage, span in zip(experiment.stages or (), experiment.spans, strict=False) if span.samples]
    sentences: list[str] = []
    for path in _leaves(changes):
        if path[-1] == "kind":
            continue
        key = ".".join(path)
        for stage in sampling:
            if states(stage.set, path) and not states(_inside(over.get("stages"), stage.name), path):
                sentences.append(
                    f"{key}: stage {stage.name} sets its own, which holds there; write"
                    f" stages.{stage.name}.set.{key}=... as well"
                )
    return sentences


def _inside(changed_stages: Any, name: str) -> dict[str, Any]:
    """Returns the keys that the changes set in a stage; the changes hold a table by name or a list of stages."""
    stage_tables = (
        [{"name": key, **stage} for key, stage in changed_stages.items() if stage]
        if isinstance(changed_stages, Mapping)
        else changed_stages or []
    )
    return next((stage.get("set", {}) for stage in stage_tables if stage["name"] == name), {})


def _leaves(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key)
