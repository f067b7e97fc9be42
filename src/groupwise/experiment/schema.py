"""The schema of an experiment, which joins the configurations of all rooms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, final

from pydantic import AfterValidator, Field, model_validator

from groupwise import config
from groupwise.checkpoint.config import CheckpointConfig
from groupwise.config import Config, ConfigError, Problem
from groupwise.config.errors import PerStep, Seed
from groupwise.domain.callable import AnyDomainConfig
from groupwise.domain.protocol import CONSISTENCY
from groupwise.experiment.object_record import ObjectRecord
from groupwise.objective import Objective
from groupwise.objective.objective import Slots, refusals
from groupwise.objective.preset import resolved_slots
from groupwise.reference import ReferenceConfig, resolve_reference
from groupwise.track.config import TrackConfig
from groupwise.training.config import Stage, TrainConfig
from groupwise.training.optimiser_config import AnyOptimiser, OptimiserConfig

Tree = dict[str, Any]

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
    *("stages", "start", "minutes", "controls", "comparison", "seed"),
    *("name", "description", "track", "checkpoint", "objects"),
    *("train.device", "train.num_threads", "train.deterministic"),
)
"""Keys that a stage and a control may not change."""


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
        metrics: metrics of training that are printed for every variant that has them, `*` standing for any part of a
            name: means over the steps that sample and over seeds.

    Example:
        >>> ComparisonConfig(vary=["method=grpo,dapo"]).seeds
        3
    """

    vary: list[str]
    seeds: PerStep = 3
    first_seed: Seed = 0
    show: list[str] = Field(default_factory=list)
    metrics: list[str] = Field(default_factory=list)


@final
@dataclass(frozen=True, eq=False)
class Plan:
    """The trainings of an experiment, each as the experiment that holds during it: `train.num_steps` is its length, and
    it has no stages and controls of its own.

    Args:
        stages: the stages in order; the experiment itself where it has none.
        controls: name -> the stages of a control, which replace those from the first that samples.
    """

    stages: tuple[Experiment, ...]
    controls: Mapping[str, tuple[Experiment, ...]]


@final
class Experiment(Slots):
    """A method on a domain with a budget, as it is written; `plan` is what of it is run.

    A group baseline needs a group: `train.group_size` of at least 2 whenever a policy term is active and the advantage
    compares the members of a group. A reference is there exactly where a term reads it.

    Args:
        name: the experiment's name in run folders and tables.
        description: one sentence, shown by `groupwise experiments`.
        method: a preset, with overlays joined by `+`; see `groupwise methods`.
        seed: the seed of every random number in the run.
        domain: the model, its data, its rewards and its sampling.
        reference: the policy with which the trained policy is compared; unset, a frozen one where the objective needs a
            reference, and none otherwise.
        train: the budget of a step and of the run.
        optimiser: the rule by which a step changes the weights.
        minutes: the time of the clock that the whole run may take, its last evaluation included; controls are then left
            out. At least one step is made. Unset bounds nothing.
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
        >>> experiment.objective.name, [stage.name for stage in experiment.plan.stages]
        ('dapo', ['warm_up', 'grpo'])
    """

    name: FolderName = "custom"
    description: str = ""
    method: str = "grpo"
    seed: Seed = 0
    domain: AnyDomainConfig
    reference: ReferenceConfig | None = None
    train: TrainConfig = TrainConfig()
    optimiser: AnyOptimiser = OptimiserConfig()
    minutes: float | None = Field(default=None, gt=0)
    start: str | None = None
    stages: tuple[Stage, ...] = ()
    controls: dict[FolderName, Control] = Field(default_factory=dict)
    comparison: ComparisonConfig | None = None
    checkpoint: CheckpointConfig = CheckpointConfig()
    track: TrackConfig = TrackConfig()
    objects: dict[str, ObjectRecord] = Field(default_factory=dict)

    @classmethod
    def instead_of_unknown(cls, key: str, place: str, table: Mapping[str, Any]) -> str:
        """Returns where the slots of the objective are."""
        if key != "objective":
            return ""
        short = next(iter(config.flatten({"objective": table[key]}))).partition(".")[2]
        return f"a slot stands at the top of an experiment or a set; write {short or 'for example trust.high'}"

    @model_validator(mode="after")
    def _sound(self) -> Experiment:
        objective = self.objective
        if problems := list(refusals(objective)):
            raise ValueError("; ".join(problems))
        if self.samples and not self.stages:
            if objective.advantage.group_baseline and self.train.group_size < 2:
                raise ValueError(
                    f"train.group_size = {self.train.group_size}: advantage.kind = {objective.advantage.kind!r}"
                    " compares the members of a group, and a group of one always gets advantage 0; write"
                    " train.group_size = 2 or more"
                )
            needs_reference = objective.needs_reference or CONSISTENCY in objective.auxiliary
            resolve_reference(self.reference, required=needs_reference or self.train.l2_to_reference > 0)
        names = [stage.name for stage in self.stages]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"stages: two are named {name!r}; each needs a name of its own")
        # Every stage is read at once, so that a mistake in the last one is reported before hours of the first.
        vars(self)["plan"] = self.plan
        return self

    @property
    def samples(self) -> bool:
        """True where a policy term is active at any step."""
        return self.policy_weight.may_be_positive()

    @cached_property
    def objective(self) -> Objective:
        """The slots as an objective, named by the method, with `+edited` where a slot differs from the preset."""
        preset = Objective.preset(self.method)
        slots = {name: getattr(self, name) for name in Slots.model_fields}
        edited = any(getattr(preset, name) != slot for name, slot in slots.items())
        return preset.model_copy(update={**slots, "name": f"{preset.name}+edited" if edited else preset.name})

    @cached_property
    def plan(self) -> Plan:
        """The stages and controls with every setting resolved, read once."""
        if not (self.stages or self.controls):
            return Plan((self,), {})
        base = {**self.table(), "start": None, "stages": [], "controls": {}}
        stages = (self,)
        if self.stages:
            stages = tuple(
                self._changed(
                    {**base, "name": stage.name, "train": {**base["train"], **_length(stage)}},
                    f"stages.{stage.name}",
                    stage.set,
                )
                for stage in self.stages
            )
        first = next((index for index, stage in enumerate(stages) if stage.samples), None)
        if self.controls and first is None:
            reason = "they replace what samples, and no stage does (policy_weight is 0 in all)"
            raise ValueError(f"controls: {reason}; remove [controls], or write controls=null behind the command")
        tables = [{**stage.table(), "start": None, "stages": [], "controls": {}} for stage in stages[first:]]
        controls = {
            name: tuple(self._changed(table, f"controls.{name}", control.set) for table in tables)
            for name, control in self.controls.items()
        }
        return Plan(stages, controls)

    def _changed(self, table: Tree, place: str, changes: Mapping[str, Any]) -> Experiment:
        """Returns the experiment of a stage or a control: `table` with the changes of its `set`."""
        refuse_kind(changes, f"{place}.set.")
        if "method" in changes:
            # A control with its own method starts from that preset: the experiment's edits belong to another method.
            edits = edited_slots(table) if place.startswith("stages.") else {}
            table = {**table, **preset_slots(changes["method"]), **edits}
        for length in ("num_steps", "num_epochs"):
            if isinstance(changes.get("train"), Mapping) and length in changes["train"]:
                advice = (
                    f"write {place}.{length}"
                    if place.startswith("stages.")
                    else "a control trains for as long as the stages it replaces; remove it"
                )
                raise ConfigError(Problem(f"{place}.set.train.{length}", f"has no effect; {advice}"))
        merged = config.merge(table, changes, Experiment)
        whole_run = [*_WHOLE_RUN, "domain.kind", *(f"domain.{key}" for key in sorted(self.domain.whole_run))]
        if fixed := [key for key in whole_run if value_at(merged, key) != value_at(table, key)]:
            message = "belongs to the whole run and cannot differ inside it; set it outside"
            raise ConfigError([Problem(f"{place}.set.{key}", message) for key in fixed])
        return config.validate(Experiment, merged, place)

    @property
    def spans(self) -> list[Experiment]:
        """The stages of the plan, in order."""
        return list(self.plan.stages)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Experiment:
        """Copies as pydantic does. The copy has an objective and a plan of its own, since its keys may be others."""
        copied = super().model_copy(update=update, deep=deep)
        for name in ("objective", "plan"):
            vars(copied).pop(name, None)
        return copied

    def table(self) -> Tree:
        """Returns every key and its value, as `config.json` holds them; `objects` only where there are some."""
        return self.model_dump(mode="json", exclude=None if self.objects else {"objects"})


def _length(stage: Stage) -> Tree:
    """Returns the length of a stage; where it is told in epochs, its steps are counted once the data are read."""
    steps = TrainConfig.model_fields["num_steps"].default if stage.num_steps is None else stage.num_steps
    return {"num_steps": steps, "num_epochs": stage.num_epochs}


def file_schema() -> dict[str, Any]:
    """Returns the JSON schema of an experiment *file*: every key may be left out, since the extended file or a default
    states it.

    A table without `kind` has the kind of the extended file, so that it is valid where it fits any kind: names and
    types are checked, completeness is not.

    Example:
        >>> schema = file_schema()
        >>> "trust" in schema["properties"], "required" in schema
        (True, False)
    """
    schema = config.json_schema(Experiment, title="Groupwise experiment")
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
    by_name_too = {"anyOf": [stages, by_name], "description": stages["description"]}
    schema["properties"] = {"extends": extends, **schema["properties"], "stages": by_name_too}
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
        # Without `kind` a table may fit several alternatives.
        partial["anyOf"] = partial.pop("oneOf")
    return partial


def refuse_kind(table: Mapping[str, Any], place: str) -> None:
    """Refuses a kind outside of any table, because `merge` would then drop every other key.

    Args:
        table: an experiment, or the `set` of a stage or control.
        place: the beginning of the table's keys.
    """
    if "kind" in table:
        advice = "a kind stands in a table, for example trust.kind; a method is written method = NAME"
        raise ConfigError(Problem(f"{place}kind = {json.dumps(table['kind'], default=str)}", f"unknown key; {advice}"))


def preset_slots(method: object) -> Tree:
    """Returns every slot of a method.

    Args:
        method: the value after `method =`.

    Raises:
        ConfigError: no such method.

    Example:
        >>> preset_slots("grpo")["ratio"]["kind"]
        'token'
    """
    if not isinstance(method, str):
        raise ConfigError(Problem(f"method = {method!r}", "must be the name of a preset; see `groupwise methods`"))
    return resolved_slots(method)


def edited_slots(table: Mapping[str, Any]) -> Tree:
    """Returns the slots in which a table differs from the preset of its method.

    Args:
        table: with a method, and slots.

    Example:
        >>> edited_slots({"method": "dapo", **preset_slots("dapo"), "entropy": 0.1, "seed": 3})
        {'entropy': 0.1}
    """
    preset = preset_slots(table["method"])
    return {key: table[key] for key in Slots.model_fields if key in table and table[key] != preset[key]}


def value_at(tree: Any, key: str) -> Any:
    """Returns the value at a dotted key; None where there is none."""
    for name in key.split("."):
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree
