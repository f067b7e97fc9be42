"""A whole run: folder, domain, stages, model, controls, summary. Also a run that goes on after it was interrupted or
killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch

from groupwise.checkpoint import CheckpointStore, StorageError, clear_torn, new_folder, remove_folder
from groupwise.checkpoint.atomic import storage_error
from groupwise.config import ConfigError, read_json
from groupwise.diagnosis import Watch
from groupwise.domain.base import Domain
from groupwise.domain.protocol import Tabulates
from groupwise.processes import is_first_process
from groupwise.runs import EvaluatedOn, RunFolder
from groupwise.streams import Streams, seed_everything
from groupwise.track import MetricsFile, Trackers, open_trackers
from groupwise.training.device import device_of_process, exactly
from groupwise.training.distributed import World, connect, disconnect
from groupwise.training.job import Domains, Job
from groupwise.training.progress import Progress
from groupwise.training.run.controls import run_controls
from groupwise.training.run.evaluation import metric_name
from groupwise.training.run.interrupt import Interrupt, listening
from groupwise.training.run.loop import Session, save
from groupwise.training.run.preflight import (
    check_configuration,
    check_domain,
    check_memory,
    device_of,
    precision_remarks,
)
from groupwise.training.run.restart import recall, take_back
from groupwise.training.run.run_folder import alone, append_environment, check_new, open_existing, write_json
from groupwise.training.run.stages import START, run_stages
from groupwise.training.run.summary import summarise
from groupwise.training.run.tables import write_tables
from groupwise.training.run.warm_up import begin_at
from groupwise.training.step.reward_memory import reward_remarks
from groupwise.training.step.state import TrainState


@final
@dataclass(frozen=True)
class Result:
    """What a run ended with.

    Args:
        folder: its folder.
        summary: `summary.json`; empty when it was interrupted.
        interrupted: whether somebody ended it early; `groupwise resume` goes on.
        signal: by which signal, where it was this process that received it; 0 otherwise.
        before_step, after_step: the steps of the evaluations that `before` and `after` are of; what the model did is in
            `rollouts/evaluation-STEP.jsonl`.

    Example:
        >>> Result(RunFolder(Path("runs/a")), {"metric": "greedy/correct", "after": 0.9}).summary["after"]
        0.9
    """

    folder: RunFolder
    summary: Mapping[str, Any]
    interrupted: bool = False
    signal: int = 0
    before_step: int = 0
    after_step: int = 0


def train(job: Job, path: Path | str) -> Result:
    """Trains from the beginning.

    Args:
        job: everything resolved.
        path: a folder that is empty or absent.

    Returns:
        what the run ended with.

    Raises:
        ConfigError: the job, the folder or the domain cannot work; nothing was computed.
        StorageError: the disk is full; the message says what is safe.

    Example:
        >>> train(Job("nothing", 0, [], build_domain=None), "runs/nothing")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: stages: there is none; give train.num_steps or at least one stage
    """
    check_configuration(job)
    folder = RunFolder(Path(path))
    if is_first_process():
        check_new(folder.path)
        if job.note is not None:
            # Before the file is there: a run that is killed at any moment goes on without a question.
            job.note(folder.config, [job.resolved])
        write_json(folder.config, job.resolved)
    return _on_device(job, folder, resumed=False)


def resume(job: Job, path: Path | str) -> Result:
    """Goes on from the newest whole checkpoint (from the beginning where there is none yet) to the same end as a run
    never interrupted.

    A run that has ended is left as it is.

    Args:
        job: everything resolved, as the run began.
        path: the run's folder.

    Returns:
        what the run ended with.

    Raises:
        ConfigError: there is no run in the folder.
        StorageError: the disk is full; the message says what is safe.

    Example:
        >>> from groupwise.objective import Objective
        >>> from groupwise.training.job import Recipe
        >>> resume(Job("lost", 0, [Recipe("grpo", Objective.preset("grpo"))], build_domain=None), "nowhere")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: run folder nowhere: it holds no run (no config.json); give the folder that `groupwise train` printed
    """  # noqa: E501
    check_configuration(job)
    folder = open_existing(Path(path))
    return _ended(job, folder) if folder.summary.is_file() else _on_device(job, folder, resumed=True)


def _ended(job: Job, folder: RunFolder) -> Result:
    """The end of a run that was reached before; what a kill left after its summary was written is removed."""
    with alone(folder):
        _tidy(folder)
    summary = read_json(folder.summary)
    newest = CheckpointStore(folder.checkpoints, job.checkpoint).latest()
    progress = (
        Progress.from_record(newest.load()["progress"])
        if newest is not None
        else Progress(latest_step=summary["steps"])
    )
    return Result(folder, summary, before_step=progress.before_step, after_step=progress.latest_step)


def _tidy(folder: RunFolder) -> None:
    """Removes from an ended run's folder where its controls began, and what writes that were cut off left."""
    start = folder.checkpoints / START
    if start.is_dir():
        remove_folder(start)
    clear_torn(folder.path)


def _on_device(job: Job, folder: RunFolder, *, resumed: bool) -> Result:
    device = device_of(job.recipes[0])
    world = connect(device)
    train = job.recipes[0].train
    if device.type == "cpu":
        torch.set_num_threads(train.num_threads)
    try:
        device = device_of_process(device, world)
        with exactly(train, device), alone(folder) if world.first else nullcontext():
            if world.first:
                clear_torn(folder.path)
            return _run(job, folder, device, world, resumed=resumed)
    except StorageError as error:
        kept = CheckpointStore(folder.checkpoints, job.checkpoint).kept()
        if kept in str(error):
            raise
        raise StorageError(f"{error} {kept}") from error
    finally:
        disconnect()


def _run(job: Job, folder: RunFolder, device: torch.device, world: World, *, resumed: bool) -> Result:
    streams, progress = Streams(job.seed), Progress()
    with progress.timed("setup"):
        domains, job = _build(job, device, streams, world)
        domain = domains.base
        state = TrainState(progress, job.recipes[0].objective.init(), domain.learner)
    store = CheckpointStore(folder.checkpoints, job.checkpoint)
    evaluated_on = domains.evaluated_on(job.recipes)
    remarks = take_back(store, folder, state, world) if resumed else []
    if job.start is not None and state.progress.step == 0:
        remarks += begin_at(job, state, domain, world)
    if world.first:
        remarks += append_environment(
            folder,
            seed=job.seed,
            device=device,
            num_processes=world.size,
            remarks=reward_remarks(domain),
            evaluated_on=evaluated_on,
        )
    trackers = _trackers(job, folder, state, world, evaluated_on)
    with listening(trackers.note) as interrupt, closing(domains), closing(trackers):
        session = _session(job, folder, device, world, streams, domain, store, trackers, interrupt)
        for remark in [*remarks, *job.remarks, *domains.remarks, *precision_remarks(domain)]:
            session.say(remark)
        if resumed:
            recall(session)
        try:
            return _to_the_end(session, job, state, domains)
        except StorageError:
            raise
        except KeyboardInterrupt:
            newest = store.latest()
            goes_on = f"goes on from step {newest.step}" if newest else "begins again: nothing was saved yet"
            session.say(f"ended at once, after step {state.progress.step}; `groupwise resume {folder.path}` {goes_on}")
            raise
        except Exception:
            if newest := store.latest():
                session.say(
                    f"an error ended the run after step {state.progress.step}; `groupwise resume {folder.path}` goes on"
                    f" from step {newest.step}"
                )
            raise


def _to_the_end(session: Session, job: Job, state: TrainState, domains: Domains) -> Result:
    folder = session.folder
    if not run_stages(session, job, state, domains):
        save(session, state)
        session.say(f"ended at step {state.progress.step}; `groupwise resume {folder.path}` goes on")
        return Result(folder, {}, interrupted=True, signal=session.interrupt.signal)
    if session.world.first and not folder.model.exists():
        with new_folder(folder.model) as partial, state.averaged():
            domains.base.save(partial)
    _tabulate(session, job, state, domains)
    baseline, ended = run_controls(session, job, state, domains)
    if not ended:
        session.say(
            f"ended during the controls; the model is saved, and `groupwise resume {folder.path}` goes on with them"
        )
        return Result(folder, {}, interrupted=True, signal=session.interrupt.signal)
    return _finish(session, job, state, baseline)


def _tabulate(session: Session, job: Job, state: TrainState, domains: Domains) -> None:
    """What the result stands beside, where the domain has such tables; made once, by the first process."""
    domain = domains.of(job.recipes[-1])
    if session.world.first and isinstance(domain, Tabulates) and not session.folder.tables.exists():
        state.learner.eval()
        with state.progress.timed("tables"), state.averaged():
            tables = domain.tables(streams=session.streams)
        if tables:
            with new_folder(session.folder.tables) as partial:
                write_tables(partial, tables)
    session.world.barrier()


def _build(job: Job, device: torch.device, streams: Streams, world: World) -> tuple[Domains, Job]:
    """The domain as each stage wants it, and the job for the kind of decisions it makes."""
    seed_everything(job.seed)
    domains = Domains(job.build_domain(device))
    job = job.on(density=domains.base.density)
    for recipe in [*job.recipes, *(recipe for recipes in job.controls.values() for recipe in recipes)]:
        check_memory(recipe, device)
        check_domain(domains.of(recipe), recipe, streams, world)
    _check_same_start(domains.base, world)
    seed_everything(streams.seed("global", world.rank))
    return domains, job


def _check_same_start(domain: Domain, world: World) -> None:
    """All processes must hold the same weights."""
    if world.size > 1 and len(set(world.gather(domain.learner.fingerprint()))) > 1:
        raise ConfigError(
            "the processes built different initial weights; build the model from the seeded global generators only"
        )


def _trackers(job: Job, folder: RunFolder, state: TrainState, world: World, evaluated_on: EvaluatedOn) -> Trackers:
    try:
        return open_trackers(
            job.track,
            folder.path,
            total_steps=_total_steps(job, state.progress),
            score=job.recipes[-1].train.metric,
            resolved=job.resolved,
            start=state.progress.step,
            # Before its first evaluation nothing of a run was said, so that step 0 is to come.
            first_step=state.progress.step + (state.progress.latest_step >= 0),
            latest=state.progress.latest,
            evaluated_on=evaluated_on,
            first_process=world.first,
        )
    except OSError as error:
        raise storage_error(folder.path, error) from error


def _total_steps(job: Job, progress: Progress) -> int:
    """Counts the steps of the run: those up to the current stage, and all of this stage and the stages after it."""
    return progress.step - progress.stage_step + sum(recipe.train.num_steps for recipe in job.recipes[progress.stage :])


def _session(
    job: Job,
    folder: RunFolder,
    device: torch.device,
    world: World,
    streams: Streams,
    domain: Domain,
    store: CheckpointStore,
    trackers: Trackers,
    interrupt: Interrupt,
) -> Session:
    return Session(
        domain=domain,
        streams=streams,
        world=world,
        device=device,
        folder=folder,
        metrics=MetricsFile(folder.metrics) if world.first else None,
        trackers=trackers,
        store=store,
        interrupt=interrupt,
        watch=Watch(job.resolved),
        rollouts_every=job.track.rollouts_every,
        num_rollouts=job.track.num_rollouts,
        keep_records=job.track.keep_records,
        model_every=job.checkpoint.model_every,
        keep_best=job.checkpoint.keep_best,
    )


def _finish(session: Session, job: Job, state: TrainState, baseline: float | None) -> Result:
    progress = state.progress
    summary = summarise(progress, metric_name(job.recipes[-1].train, progress.latest), baseline, job.seed)
    if session.world.first:
        write_json(session.folder.summary, summary)
        _tidy(session.folder)
    session.world.barrier()
    return Result(session.folder, summary, before_step=progress.before_step, after_step=progress.latest_step)
