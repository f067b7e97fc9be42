"""Runs of an experiment: the domain is built, every stage is resolved, and training begins."""

from __future__ import annotations

import dataclasses
import datetime
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from groupwise.config import ConfigError, difference, held_object, merge, object_path, user_object, validate
from groupwise.domain.callable import is_users
from groupwise.experiment.code_consent import code_of, shipped_code
from groupwise.experiment.loaded_run import check_start
from groupwise.experiment.loading import edits, load_experiment
from groupwise.experiment.object_record import DOMAIN_INSTANCE, MODULE, sources_of
from groupwise.experiment.same_settings import check_same_settings
from groupwise.experiment.schema import Experiment
from groupwise.processes import can_spread
from groupwise.runs.folder import RunFolder

if TYPE_CHECKING:
    import torch

    from groupwise.domain.base import Domain
    from groupwise.objective import Objective
    from groupwise.training.job import Job, Recipe
    from groupwise.training.run.launch import Result


def run(
    experiment: Experiment, out: str | Path | None = None, *, controls: bool = True, remarks: Sequence[str] = ()
) -> Result:
    """Trains an experiment from the beginning.

    Args:
        experiment: the experiment, with every key stated.
        out: the run folder, which must be new; unset makes `runs/<experiment>-<seed>-<timestamp>`.
        controls: whether the experiment's controls are trained as well.
        remarks: further sentences to print at the start.

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
        return _beside_controls(train(_with_remarks(job_of(experiment), remarks), folder))
    except FolderTakenError:
        raise  # Another process may have begun in the folder since it was looked at.
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
        experiment: the experiment, with every key stated; no Python object stands behind it.
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
    # The user's own command names the same code as the folder, so that the folder asks for no consent.
    return resume(folder, run_code=True, remarks=remarks)


def with_controls(experiment: Experiment, controls: bool) -> Experiment:
    """Returns the experiment with its controls, or without: the run's configuration records that there are none, so
    that a resumed run leaves them out as well.

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

    experiment = load_experiment(open_existing(Path(folder)).config, run_code=run_code)
    return _beside_controls(go_on(_with_remarks(job_of(experiment), remarks), Path(folder)))


def _with_remarks(job: Job, remarks: Sequence[str]) -> Job:
    return dataclasses.replace(job, remarks=[*remarks, *job.remarks])


def _beside_controls(result: Result) -> Result:
    """Returns the result with the run's gains over its controls in the summary."""
    from groupwise.plugins import find

    write_gains = find("write_gains")
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
        'method grpo+edited: divergence: k3 -> none'
    """
    from groupwise.objective.objective import warnings

    sentences: dict[str, None] = {}
    changed = edits(experiment)
    if changed:
        sentences[f"method {experiment.objective.name}: {', '.join(_listed(experiment, changed))}"] = None
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
        # The learning rate follows the steps of the loop, whatever the number of updates in a step.
        if span.optimiser.warm_up_steps >= span.train.num_steps:
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
        adapt=_adapter(span, experiment),
        measures={"domain": span.domain.model_dump(mode="json")},
    )


def _adapter(span: Experiment, experiment: Experiment) -> Callable[[Domain], Domain]:
    """Returns a function that gives the domain the settings of a stage, where they differ from the experiment's. The
    domain's module stays the same.
    """
    if span.domain == experiment.domain:
        return lambda domain: domain

    return span.domain.adapt


def _listed(experiment: Experiment, changed: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """Returns a text for each changed key. A table whose kind was changed is one text, with the settings that differ
    from the new kind's defaults.
    """
    exchanged = [key.removesuffix(".kind") for key in changed if key.endswith(".kind")]
    outermost = [place for place in exchanged if not any(place.startswith(f"{outer}.") for outer in exchanged)]
    texts: dict[str, None] = {}
    for key, (old_value, new_value) in changed.items():
        place = next((place for place in outermost if key.startswith(f"{place}.")), None)
        if place is None:
            texts[f"{key} {_show(old_value)} -> {_show(new_value)}"] = None
            continue
        old_kind, new_kind = changed[f"{place}.kind"]
        settings = ", ".join(
            f"{name} {_show(value)}" for name, value in _own_settings(experiment.objective, place).items()
        )
        texts[f"{place}: {_show(old_kind)} -> {_show(new_kind)}" + (f" ({settings})" if settings else "")] = None
    return list(texts)


def _own_settings(objective: Objective, place: str) -> dict[str, Any]:
    """Returns the settings of a table, without its kind, that differ from the kind's defaults."""
    table: Any = objective
    for name in place.split("."):
        table = table.get(name) if isinstance(table, dict) else getattr(table, name, None)
    if not isinstance(table, BaseModel):
        return {}
    defaults = {
        name: field.get_default(call_default_factory=True)
        for name, field in type(table).model_fields.items()
        if not field.is_required()
    }
    plain = {
        name: default.model_dump(mode="json") if isinstance(default, BaseModel) else default
        for name, default in defaults.items()
    }
    differing = difference(plain, table.model_dump(mode="json"))
    return {
        name: value for name, (_, value) in differing.items() if value is not None and name.rpartition(".")[2] != "kind"
    }


def _show(value: Any) -> str:
    return "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
