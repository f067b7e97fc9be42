"""From an experiment to a run: the domain is built, every stage is resolved, and training begins."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.config import merge
from groupwise.experiment.loading import edits, load_experiment
from groupwise.experiment.schema import Experiment, read

if TYPE_CHECKING:
    import torch

    from groupwise.domain.protocol import Domain
    from groupwise.train.job import Job, Recipe
    from groupwise.train.launch import Result


def run(experiment: Experiment | str | Path, out: str | Path | None = None, *, controls: bool = True) -> Result:
    """Trains from the beginning.

    Args:
        experiment: an experiment, or the name or path of one.
        out: the run folder, which must be new; unset makes `runs/<experiment>-<seed>-<timestamp>`.
        controls: whether the experiment's controls are trained as well.

    Returns:
        The folder and what `summary.json` holds: metric, before, after, baseline, seconds by part, steps, seed.

    Raises:
        ConfigError: anything that can be known to be wrong before the first step.
    """
    from groupwise.train.launch import run as train

    if not isinstance(experiment, Experiment):
        experiment = load_experiment(experiment)
    if not controls:
        # Written into the run's configuration too, so that a resumed run leaves them out as well.
        experiment = experiment.model_copy(update={"controls": {}})
    folder = Path(out) if out is not None else default_run_folder(experiment)
    new = not folder.exists()
    try:
        return train(job_of(experiment), folder)
    except ValueError:
        if new:
            _forget(folder)
        raise


def resume(folder: str | Path) -> Result:
    """Goes on with a run from its newest checkpoint, to the same end as if it had not been cut off.

    Raises:
        ConfigError: there is no run in the folder.
    """
    from groupwise.train.launch import resume as go_on
    from groupwise.train.run_folder import open_existing

    return go_on(job_of(load_experiment(open_existing(Path(folder)).config)), Path(folder))


def default_run_folder(experiment: Experiment) -> Path:
    """`runs/<experiment>-<seed>-<timestamp>`."""
    return Path("runs") / f"{experiment.name}-{experiment.seed}-{datetime.datetime.now():%Y%m%d-%H%M%S}"


def _forget(folder: Path) -> None:
    """Removes a run folder in which nothing was computed, so that the corrected command may use its name."""
    from groupwise.train.distributed import is_first_process

    if is_first_process() and folder.is_dir() and {path.name for path in folder.iterdir()} <= {"config.json", "environment.json"}:
        shutil.rmtree(folder)


def open_domain(experiment: Experiment, device: str | torch.device = "cpu") -> Domain:
    """The domain of an experiment: its data read, its model and tokenizer loaded."""
    from groupwise.streams import Streams

    domain: Any = experiment.domain.open(streams=Streams(experiment.seed), device=str(device))
    return domain


def with_model(experiment: Experiment, model: str | Path) -> Experiment:
    """The experiment at its end (its last stage's settings), on a trained model."""
    last = experiment.spans[-1]
    tree = merge({**last.table(), "name": experiment.name}, {"domain": {"model": {"kind": "pretrained", "path": str(model)}}})
    return read(tree, f"{experiment.name} with the model {model}")


def job_of(experiment: Experiment) -> Job:
    """The experiment as the training loop takes it: stages with every setting resolved."""
    from groupwise.train.job import Job

    stages = experiment.stages
    spans = experiment.spans
    return Job(
        name=experiment.name,
        seed=experiment.seed,
        recipes=[_recipe(span, experiment, cache=stages[index].cache if stages else True) for index, span in enumerate(spans)],
        build_domain=lambda device: open_domain(experiment, device),
        resolved=experiment.table(),
        checkpoint=experiment.checkpoint,
        track=experiment.track,
        controls={name: [_recipe(span, experiment) for span in experiment.control(name)] for name in experiment.controls},
        remarks=remarks(experiment),
    )


def remarks(experiment: Experiment) -> list[str]:
    """What is said once when a run starts: what was changed in the method, and settings that are legal and rarely meant."""
    from groupwise.objective.refusals import warnings

    said: dict[str, None] = {}
    changed = edits(experiment)
    # Where a kind was exchanged, the settings that went with the old one say nothing more.
    gone = tuple(key.removesuffix("kind") for key, (_, after) in changed.items() if key.endswith(".kind") and after is not None)
    changed = {key: values for key, values in changed.items() if values[1] is not None or not key.startswith(gone)}
    if changed:
        listed = ", ".join(f"{key} {_show(before)} -> {_show(after)}" for key, (before, after) in changed.items())
        said[f"method {experiment.objective.name}: {listed}"] = None
    for span in experiment.spans:
        if span.samples:
            updates = span.train.updates_per_batch * span.train.minibatches
            said |= dict.fromkeys(warnings(span.objective, updates, frozenset(f"objective.{key}" for key in edits(span))))
    return list(said)


def _recipe(span: Experiment, whole: Experiment, *, cache: bool = True) -> Recipe:
    from groupwise.train.job import Recipe

    return Recipe(
        name=span.name,
        objective=span.objective,
        train=span.train,
        optimiser=span.optimiser,
        reference=span.reference,
        sampling=dict(getattr(span.domain, "sampling_schedule", {})),
        adapt=_adapter(span, whole),
        cache=cache,
        identity=span.model_dump(mode="json", include={"domain", "reference"}),
    )


def _adapter(span: Experiment, whole: Experiment) -> Callable[[Domain], Domain]:
    """Gives the domain a stage's settings where they differ from the experiment's; the module stays the same."""
    if span.domain == whole.domain:
        return lambda domain: domain

    return lambda domain: domain.adapted(span.domain)


def _show(value: Any) -> str:
    return "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
