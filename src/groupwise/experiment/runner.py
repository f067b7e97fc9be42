"""Runs of an experiment: the domain is built, every stage is resolved, and training begins."""

from __future__ import annotations

import dataclasses
import datetime
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from groupwise import plugins
from groupwise.config import ConfigError, difference, held_object, merge, object_path, read_json, user_object, validate
from groupwise.domain.callable import is_users
from groupwise.experiment.code_consent import code_of, shipped_code
from groupwise.experiment.loading import edits, load_experiment, read_experiment
from groupwise.experiment.object_record import DOMAIN_INSTANCE, MODULE, MOST_SHOWN, more, sources_of
from groupwise.experiment.schema import Experiment
from groupwise.processes import can_spread
from groupwise.runs.folder import RunFolder, naming_start, require_known_version, run_to_start_from

if TYPE_CHECKING:
    import torch

    from groupwise.domain.base import Domain
    from groupwise.training.job import Job, Recipe
    from groupwise.training.run.launch import Result


def run(experiment: Experiment, out: str | Path | None = None, *, controls: bool = True) -> Result:
    """Trains an experiment from the beginning.

    Args:
        experiment: the experiment, with every key stated.
        out: the run folder, which must be new; unset makes `runs/<experiment>-<seed>-<timestamp>`.
        controls: whether the experiment's controls are trained as well.

    Returns:
        the result of `groupwise.train`.

    Raises:
        ConfigError: any mistake that can be found before the first step.
    """
    from groupwise.checkpoint import is_empty
    from groupwise.training.run.launch import train
    from groupwise.training.run.run_folder import FolderTakenError

    experiment = with_controls(experiment, controls)
    check_start(experiment)
    folder = Path(out) if out is not None else default_run_folder(experiment)
    had_folder = folder.exists()
    had_empty_folder = folder.is_dir() and is_empty(folder)
    try:
        return _with_gains(train(job_of(experiment), folder))
    except FolderTakenError:
        raise  # Another process has started in this folder in the meantime; leave it alone.
    except ValueError:
        if not had_folder or had_empty_folder:
            _forget(folder)
        if had_empty_folder:
            folder.mkdir(exist_ok=True)
        raise


def begin_or_resume(experiment: Experiment, folder: Path, *, controls: bool = True) -> Result:
    """Goes on with the run in the folder where it holds this experiment's run, and begins the run otherwise. So one
    command serves a first start and every restart by `torchrun --max-restarts` or by a cluster's queue.

    Args:
        experiment: the experiment, with every key stated; it refers to no Python object.
        folder: the run folder, which is absent, empty or holds a run of the same settings.
        controls: whether the experiment's controls are trained as well.

    Raises:
        ConfigError: the folder holds a run of other settings, or a mistake was found before the first step.

    Example:
        >>> import json, tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "config.json").write_text(json.dumps({**load_experiment("language").table(), "seed": 3}))
        >>> begin_or_resume(load_experiment("language"), folder)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: run folder ...: its run began with other settings: seed = 0 (3 there); ...
    """
    if not RunFolder(folder).config.is_file():
        return run(experiment, folder, controls=controls)
    remarks = check_same_settings(with_controls(experiment, controls), folder)
    # The user's command names the same code, so the folder needs no consent.
    return resume(folder, run_code=True, remarks=remarks)


def with_controls(experiment: Experiment, controls: bool) -> Experiment:
    """Returns the experiment with or without its controls. Without, the run's configuration records that there are
    none, so that a resumed run leaves them out as well.

    Example:
        >>> with_controls(load_experiment("language"), False).controls
        {}
    """
    return experiment if controls else experiment.model_copy(update={"controls": {}})


def resume(folder: str | Path, *, run_code: bool = False, remarks: Sequence[str] = ()) -> Result:
    """Goes on with a run. The caller holds the objects that the run asks for (`groupwise.config.holding`).

    Args:
        run_code: allows the code that the folder names.
        remarks: further sentences to print at the start.

    Returns:
        the result of `groupwise.resume`.

    Raises:
        ConfigError: there is no run in the folder, or it names code that needs consent.
    """
    from groupwise.training.run.launch import resume as go_on
    from groupwise.training.run.run_folder import open_existing

    run_folder = open_existing(Path(folder))
    with naming_start(run_folder):
        job = job_of(load_experiment(run_folder.config, run_code=run_code))
        return _with_gains(go_on(dataclasses.replace(job, remarks=[*remarks, *job.remarks]), run_folder.path))


def _with_gains(result: Result) -> Result:
    """Returns the result with the run's gains over its controls in the summary."""
    write_gains = plugins.find("write_gains")
    if not result.summary or write_gains is None:
        return result
    return dataclasses.replace(result, summary=write_gains(result.folder.path))


def default_run_folder(experiment: Experiment) -> Path:
    """Returns `runs/<experiment>-<seed>-<timestamp>`.

    Example:
        >>> default_run_folder(load_experiment("language")).name.startswith("language-0-")
        True
    """
    return Path("runs") / f"{experiment.name}-{experiment.seed}-{datetime.datetime.now():%Y%m%d-%H%M%S}"


def _forget(folder: Path) -> None:
    """Removes a run folder in which nothing was computed, so that the corrected command may use its name."""
    from groupwise.checkpoint import unfinished_writes
    from groupwise.processes import is_first_process

    if not is_first_process() or not folder.is_dir():
        return
    run = RunFolder(folder)
    has_metrics = run.metrics.is_file() and run.metrics.stat().st_size > 0
    names = {path.name for path in set(folder.iterdir()) - set(unfinished_writes(folder))}
    if not has_metrics and names <= {run.config.name, run.environment.name, run.metrics.name, "tensorboard", "wandb"}:
        shutil.rmtree(folder)


def open_domain(experiment: Experiment, device: str | torch.device = "cpu", *, spreads: bool = False) -> Domain:
    """Opens the domain of an experiment: reads its data, loads its model and tokenizer.

    Args:
        device: the device on which the domain computes.
        spreads: whether its weights are spread over processes before anything else.

    Returns:
        the domain; initial weights that are drawn at random depend on the experiment's seed.
    """
    from groupwise.streams import Streams

    experiment.domain.require_extra()
    instance: Domain | None = held_object(DOMAIN_INSTANCE)
    if instance is None and DOMAIN_INSTANCE in experiment.objects:
        raise ConfigError(
            f"domain: the run began with an object ({experiment.objects[DOMAIN_INSTANCE].type}), whose weights no file"
            " holds; hand it over again: groupwise.resume(FOLDER, domain=...)"
        )
    if instance is not None:
        domain: Domain = instance.checked()
    else:
        if spreads and not experiment.domain.spreads:
            raise ConfigError(
                f'train.sharding = "full": the domain {experiment.domain.kind!r} does not spread its weights over'
                " processes; write train.sharding = none"
            )
        opened = experiment.domain.open_to_spread if spreads else experiment.domain.open
        domain = opened(streams=Streams(experiment.seed), device=str(device))
    if MODULE in experiment.objects:
        domain.module = user_object(object_path(MODULE), "model").to(device)
    return domain


def with_model(experiment: Experiment, model: str | Path) -> Experiment:
    """Returns the experiment with the settings of its last stage, on a trained model.

    Args:
        model: a model folder.

    Example:
        >>> with_model(load_experiment("language"), "runs/a/model").domain.model.path
        'runs/a/model'
    """
    final = experiment.plan.stages[-1].table()
    # A domain that a program built is left out, since its weights are replaced by those of the model.
    final.get("objects", {}).pop(DOMAIN_INSTANCE, None)
    changes = {"name": experiment.name, "domain": experiment.plan.stages[-1].domain.on_model(str(model))}
    return validate(Experiment, merge(final, changes), f"{experiment.name} with the model {model}")


def job_of(experiment: Experiment) -> Job:
    """Returns the experiment in the form that the training loop takes: stages with every setting resolved.

    Returns:
        the job; its domain is built when the run begins.

    Example:
        >>> [recipe.name for recipe in job_of(load_experiment("language")).recipes]
        ['warm_up', 'grpo']
    """
    from groupwise.training.job import Job

    plan = experiment.plan
    spreads = plan.stages[0].train.sharding == "full" and can_spread()
    own_code = [named for named in code_of(experiment) if named.path not in shipped_code()]
    return Job(
        name=experiment.name,
        seed=experiment.seed,
        recipes=[_recipe(stage, experiment) for stage in plan.stages],
        build_domain=lambda device: open_domain(experiment, device, spreads=spreads),
        resolved=experiment.table(),
        checkpoint=experiment.checkpoint,
        track=experiment.track,
        controls={
            name: [_recipe(stage, experiment) for stage in stages]
            for name, stages in plan.controls.items()
            if experiment.minutes is None
        },
        minutes=experiment.minutes,
        start=experiment.start,
        remarks=remarks(experiment),
        tries_domain=is_users(experiment.domain),
        sources=lambda: sources_of(own_code),
    )


def remarks(experiment: Experiment) -> list[str]:
    """Lists the remarks that a run prints at its start: changes of the method, and legal settings that are rarely
    intended.

    Returns:
        sentences without repetition.

    Example:
        >>> remarks(load_experiment("language"))[0]
        'method grpo+edited: divergence.kind k3 -> none'
    """
    from groupwise.objective.objective import warnings

    sentences: dict[str, None] = {}
    # Where a kind changed, only the settings of the new kind are listed.
    if changed := {key: pair for key, pair in edits(experiment).items() if pair[1] is not None}:
        listed = ", ".join(f"{key} {_show(old)} -> {_show(new)}" for key, (old, new) in changed.items())
        sentences[f"method {experiment.objective.name}: {listed}"] = None
    for span in experiment.plan.stages:
        if span.samples:
            updates = span.train.updates_per_batch * span.train.minibatches
            sentences |= dict.fromkeys(
                warnings(span.objective, updates, frozenset(f"objective.{key}" for key in edits(span)))
            )
        sampled_terms = [
            name
            for name, schedule in span.objective.auxiliary.items()
            if name != "supervised" and schedule.may_be_positive()
        ]
        if not span.samples and sampled_terms:
            sentences[
                f"stage {span.name}: auxiliary.{sampled_terms[0]} is computed on what is sampled, and this stage"
                " samples nothing: it has no effect in it"
            ] = None
        # The learning rate is scheduled by steps, not by optimiser updates.
        if span.train.num_epochs is None and span.optimiser.warm_up_steps >= span.train.num_steps:
            sentences[
                f"stage {span.name}: optimiser.warm_up_steps = {span.optimiser.warm_up_steps} is no shorter than the"
                f" stage ({span.train.num_steps} steps), so its learning rate is not reached before the end"
            ] = None
    if experiment.minutes is not None and experiment.controls:
        sentences[f"minutes = {experiment.minutes:g}: controls are left out ({', '.join(experiment.controls)})"] = None
    return list(sentences)


def _recipe(span: Experiment, experiment: Experiment) -> Recipe:
    from groupwise.training.job import Recipe

    return Recipe(
        name=span.name,
        objective=span.objective,
        train=span.train,
        optimiser=span.optimiser,
        reference=span.reference,
        sampling=dict(span.domain.sampling_schedule),
        # `adapt` changes the settings of a stage and keeps the module.
        adapt=span.domain.adapt if span.domain != experiment.domain else lambda domain: domain,
        measures={"domain": span.domain.model_dump(mode="json")},
    )


def _show(value: Any) -> str:
    return "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


# The comparison of an experiment with the run that a folder holds already.

OF_MEMORY: Final = (
    "train.micro_batch_members",
    "train.gradient_checkpointing",
    "domain.engine.max_members",
    "domain.transitions_at_once",
)
"""The keys that decide how a step is computed and not what: they change its results by rounding alone. A run that ran
out of memory can be continued with other values.
"""

_OF_A_PART: Final = re.compile(r"^(stages\[\d+\]|controls\..+?)\.set\.")
"""Matches the beginning of a key in the `set` of a stage or a control."""


def check_same_settings(experiment: Experiment, folder: Path, *, patience_seconds: float = 10.0) -> list[str]:
    """Refuses to resume a run under other settings. The keys in `OF_MEMORY`, also those of a stage or control, may
    differ and are then written to `config.json`. Python objects are not compared. Every process calls this function.

    Args:
        experiment: the experiment as it would begin now.
        folder: a run folder with its `config.json`.
        patience_seconds: the longest wait for a process that trains in the folder, before `config.json` is written.

    Returns:
        a sentence about each key that differs from now on.

    Raises:
        ConfigError: a key differs, and the message gives both values; or another process trains in the folder.

    Example:
        >>> import json, tempfile
        >>> from groupwise.experiment.loading import load_experiment
        >>> experiment = load_experiment("language")
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "config.json").write_text(json.dumps({**experiment.table(), "seed": 3}))
        >>> check_same_settings(experiment, folder)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: run folder ...: its run began with other settings: seed = 0 (3 there); ...
    """
    from groupwise.training.run.run_folder import accept_configuration, locked, write_json

    run = RunFolder(folder)
    # A key that an older version did not write has its present default, as in `resume`.
    recorded = read_experiment(run.config, allowed=[reference.path for reference in code_of(experiment)]).table()
    wanted = {**experiment.table(), **{key: value for key, value in recorded.items() if key == "objects"}}
    changed = difference({**recorded, "objects": None}, {**wanted, "objects": None})
    if others := [key for key in changed if _OF_A_PART.sub("", key) not in OF_MEMORY]:
        differences = [f"{key} = {changed[key][1]!r} ({changed[key][0]!r} there)"[:200] for key in others]
        raise ConfigError(
            f"run folder {folder}: its run began with other settings:"
            f" {', '.join(differences[:MOST_SHOWN])}{more(differences)}; give the same again (only"
            f" {', '.join(OF_MEMORY)} may differ), or another folder for another run"
        )
    if changed and not run.summary.is_file():
        # A training process locks `config.json`. Replacing the file under the lock keeps a second process out, and the
        # first process of this run to arrive writes it for all.
        with locked(run, patience_seconds):
            if read_json(run.config) != wanted:
                write_json(run.config, wanted)
                accept_configuration(run)
    return [f"goes on with {key} = {new!r}, where it had {old!r}" for key, (old, new) in changed.items()]


# `start = RUN`: the other run must have the same domain and model.


def check_start(experiment: Experiment) -> None:
    """Refuses to start from a run of another domain or another model.

    Args:
        experiment: an experiment; it passes without `start`.

    Raises:
        ConfigError: the folder holds no run, or the run's domain, model or another setting of the whole run
            differs; another version wrote the run.
    """
    if experiment.start is None:
        return
    folder = run_to_start_from(experiment.start)
    require_known_version(folder)
    domain = experiment.domain
    names = ("kind", *sorted(domain.whole_run))
    table = read_json(folder.config).get("domain")
    start_values = {name: table.get(name) for name in names} if isinstance(table, dict) else {}
    values: dict[str, Any] = {name: domain.model_dump(mode="json")[name] for name in names}
    changed = difference(start_values, values)
    if changed:
        key, (start_value, value) = next(iter(changed.items()))
        raise ConfigError(
            f"start = {experiment.start!r}: domain.{key} is {start_value!r} there and {value!r} in this run; start from"
            " a run of the same model, or leave start out"
        )
