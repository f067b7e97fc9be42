"""From an experiment to a run: the domain is built, every stage is resolved, and training begins."""

from __future__ import annotations

import dataclasses
import datetime
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from groupwise.config import ConfigError, difference, held_object, merge, object_path, user_object
from groupwise.experiment.asked import asks, remember
from groupwise.experiment.loading import edits, load_experiment
from groupwise.experiment.python_objects import DOMAIN_INSTANCE, MODULE
from groupwise.experiment.schema import Experiment, read
from groupwise.experiment.start import check_start
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
        experiment: with every key stated.
        out: the run folder, which must be new; unset makes `runs/<experiment>-<seed>-<timestamp>`.
        controls: whether the experiment's controls are trained as well.
        remarks: further sentences to say at the start.

    Returns:
        what `groupwise.train` returns.

    Raises:
        ConfigError: anything that can be known to be wrong before the first step.
    """
    from groupwise.checkpoint import is_empty
    from groupwise.training.run.launch import train

    if not controls:
        # Written into the run's configuration too, so that a resumed run leaves them out as well.
        experiment = experiment.model_copy(update={"controls": {}})
    check_start(experiment)
    folder = Path(out) if out is not None else default_run_folder(experiment)
    existed = folder.exists()
    empty = folder.is_dir() and is_empty(folder)
    try:
        return _beside_controls(train(_with_remarks(job_of(experiment), remarks), folder))
    except ValueError:
        if not existed or empty:
            _forget(folder)
        if empty:
            folder.mkdir(exist_ok=True)
        raise


def resume(folder: str | Path, *, run_code: bool = False, remarks: Sequence[str] = ()) -> Result:
    """Goes on with a run, whose objects are held where it has some.

    Args:
        folder: the run folder.
        run_code: the code that it names may run, where this user did not make it.
        remarks: further sentences to say at the start.

    Returns:
        what `groupwise.resume` returns.

    Raises:
        ConfigError: there is no run in the folder, or it names code that is to be asked about.
    """
    from groupwise.training.run.launch import resume as go_on
    from groupwise.training.run.run_folder import open_existing

    experiment = load_experiment(open_existing(Path(folder)).config, run_code=run_code)
    return _beside_controls(go_on(_with_remarks(job_of(experiment), remarks), Path(folder)))


def _with_remarks(job: Job, remarks: Sequence[str]) -> Job:
    return dataclasses.replace(job, remarks=[*remarks, *job.remarks])


def _beside_controls(result: Result) -> Result:
    """The same, its summary completed by what the run gained over its controls."""
    from groupwise.experiment.controls import note

    return result if not result.summary else dataclasses.replace(result, summary=note(result.folder.path))


def default_run_folder(experiment: Experiment) -> Path:
    """`runs/<experiment>-<seed>-<timestamp>`.

    Args:
        experiment: what will be run.

    Example:
        >>> default_run_folder(load_experiment("language")).name.startswith("language-0-")
        True
    """
    return Path("runs") / f"{experiment.name}-{experiment.seed}-{datetime.datetime.now():%Y%m%d-%H%M%S}"


def _forget(folder: Path) -> None:
    """Removes a run folder in which nothing was computed, so that the corrected command may use its name."""
    from groupwise.checkpoint import torn
    from groupwise.processes import is_first_process

    if not is_first_process() or not folder.is_dir():
        return
    run = RunFolder(folder)
    computed = run.metrics.is_file() and run.metrics.stat().st_size > 0
    names = {path.name for path in set(folder.iterdir()) - set(torn(folder))}
    if not computed and names <= {run.config.name, run.environment.name, run.metrics.name, "tensorboard", "wandb"}:
        shutil.rmtree(folder)


def open_domain(experiment: Experiment, device: str | torch.device = "cpu") -> Domain:
    """The domain of an experiment: its data read, its model and tokenizer loaded.

    Args:
        experiment: whose domain.
        device: where it computes.

    Returns:
        the domain, whose module has the weights that the seed gives.
    """
    from groupwise.streams import Streams

    experiment.domain.require_extra()
    instance: Domain | None = held_object(DOMAIN_INSTANCE)
    if instance is not None:
        domain: Domain = instance.checked()
    else:
        domain = experiment.domain.open(streams=Streams(experiment.seed), device=str(device))
        began = experiment.objects.get(DOMAIN_INSTANCE)
        if began is not None and began.hash != domain.learner.fingerprint():
            raise ConfigError(
                f"domain: the run began with an object ({began.type}) of other weights than its class makes; hand it"
                " over again: groupwise.resume(FOLDER, domain=...)"
            )
    if MODULE in experiment.objects:
        domain.module = user_object(object_path(MODULE), "model").to(device)
    return domain


def with_model(experiment: Experiment, model: str | Path) -> Experiment:
    """The experiment at its end (its last stage's settings), on a trained model.

    Args:
        experiment: any.
        model: a model folder.

    Example:
        >>> with_model(load_experiment("language"), "runs/a/model").domain.model.path
        'runs/a/model'
    """
    last = experiment.spans[-1]
    # The weights of a domain that a program built are those of the model from here on.
    objects = {name: record for name, record in experiment.objects.items() if name != DOMAIN_INSTANCE}
    last = last.model_copy(update={"objects": objects})
    tree = merge({**last.table(), "name": experiment.name}, {"domain": last.domain.on_model(str(model))})
    return read(tree, f"{experiment.name} with the model {model}")


def job_of(experiment: Experiment) -> Job:
    """The experiment as the training loop takes it: stages with every setting resolved.

    Args:
        experiment: any.

    Returns:
        the job; its domain is built when the run begins.

    Example:
        >>> [recipe.name for recipe in job_of(load_experiment("language")).recipes]
        ['warm_up', 'grpo']
    """
    from groupwise.training.job import Job

    return Job(
        name=experiment.name,
        seed=experiment.seed,
        recipes=[_recipe(span, experiment) for span in experiment.spans],
        build_domain=lambda device: open_domain(experiment, device),
        resolved=experiment.table(),
        checkpoint=experiment.checkpoint,
        track=experiment.track,
        controls={
            name: [_recipe(span, experiment) for span in experiment.control(name)] for name in experiment.controls
        },
        start=experiment.start,
        remarks=remarks(experiment),
        note=remember if asks(experiment) else None,
    )


def remarks(experiment: Experiment) -> list[str]:
    """What is said once when a run starts: what was changed in the method, and settings that are legal and rarely
    meant.

    Args:
        experiment: any.

    Returns:
        sentences, each once.

    Example:
        >>> remarks(load_experiment("language"))[0]
        'method grpo+edited: divergence: k3 -> none'
    """
    from groupwise.objective.refusals import warnings

    said: dict[str, None] = {}
    changed = edits(experiment)
    if changed:
        said[f"method {experiment.objective.name}: {', '.join(_listed(experiment, changed))}"] = None
    for span in experiment.spans:
        if span.samples:
            updates = span.train.updates_per_batch * span.train.minibatches
            said |= dict.fromkeys(
                warnings(span.objective, updates, frozenset(f"objective.{key}" for key in edits(span)))
            )
        beside = [
            name
            for name, schedule in span.objective.auxiliary.items()
            if name != "supervised" and schedule.may_be_positive()
        ]
        if not span.samples and beside:
            said[
                f"stage {span.name}: auxiliary.{beside[0]} is computed on what is sampled, and this stage samples"
                " nothing: it has no effect in it"
            ] = None
        # The rate follows the steps of the loop, however many updates each of them makes.
        if span.optimiser.warm_up_steps >= span.train.num_steps:
            said[
                f"stage {span.name}: optimiser.warm_up_steps = {span.optimiser.warm_up_steps} is no shorter than the"
                f" stage ({span.train.num_steps} steps), so its learning rate is not reached before the end"
            ] = None
    return list(said)


def _recipe(span: Experiment, whole: Experiment) -> Recipe:
    from groupwise.training.job import Recipe

    return Recipe(
        name=span.name,
        objective=span.objective,
        train=span.train,
        optimiser=span.optimiser,
        reference=span.reference,
        sampling=dict(span.domain.sampling_schedule),
        adapt=_adapter(span, whole),
        measures={"domain": span.domain.model_dump(mode="json")},
    )


def _adapter(span: Experiment, whole: Experiment) -> Callable[[Domain], Domain]:
    """Gives the domain a stage's settings where they differ from the experiment's; the module stays the same."""
    if span.domain == whole.domain:
        return lambda domain: domain

    return span.domain.adapt


def _listed(experiment: Experiment, changed: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """One entry a changed key; a table whose kind was exchanged is one entry, with what differs from the new kind's
    defaults.
    """
    exchanged = [key.removesuffix(".kind") for key in changed if key.endswith(".kind")]
    outermost = [place for place in exchanged if not any(place.startswith(f"{other}.") for other in exchanged)]
    listed: dict[str, None] = {}
    for key, (before, after) in changed.items():
        place = next((place for place in outermost if key.startswith(f"{place}.")), None)
        if place is None:
            listed[f"{key} {_show(before)} -> {_show(after)}"] = None
            continue
        old, new = changed[f"{place}.kind"]
        own = ", ".join(f"{name} {_show(value)}" for name, value in _own_settings(experiment.objective, place).items())
        listed[f"{place}: {_show(old)} -> {_show(new)}" + (f" ({own})" if own else "")] = None
    return list(listed)


def _own_settings(objective: Objective, place: str) -> dict[str, Any]:
    """What a table states beside its kind that its kind does not have by default."""
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
        name: after for name, (_, after) in differing.items() if after is not None and name.rpartition(".")[2] != "kind"
    }


def _show(value: Any) -> str:
    return "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
