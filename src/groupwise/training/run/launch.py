"""A whole run: folder, domain, stages, model, controls and summary. Also the resumption of a run that was interrupted
or killed.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from groupwise.checkpoint import (
    CheckpointStore,
    StorageError,
    atomic,
    clear_unfinished_writes,
    new_folder,
    remove_folder,
)
from groupwise.config import ConfigError, read_json
from groupwise.domain import returned
from groupwise.domain.base import Domain
from groupwise.domain.protocol import Tabulates
from groupwise.extras import require
from groupwise.memory import running_out
from groupwise.plugins import brought, find
from groupwise.processes import is_first_process, is_launched
from groupwise.reference import ReferencePolicy
from groupwise.runs import EvaluatedOn, RunFolder
from groupwise.streams import Streams, seed_everything
from groupwise.track import MetricsFile, Silence, Trackers, open_trackers, read_metrics
from groupwise.training import distributed
from groupwise.training.device import device_of_process, exact_arithmetic
from groupwise.training.job import Domains, Job
from groupwise.training.run import evaluation, loop, preflight, rollout_records, run_folder, stages
from groupwise.training.step.state import Progress, TrainState, reference_config, restoring, rewards_of

# The resumption of a run: its newest whole checkpoint is restored, and its files are cut back to that checkpoint.


def restore_newest(store: CheckpointStore, folder: RunFolder, state: TrainState, world: distributed.World) -> list[str]:
    """Restores the newest whole checkpoint, if there is one, into a fresh state.

    Rows of `metrics.jsonl` and files of `rollouts/` after the checkpoint are removed: the run writes them again.

    Args:
        store: the checkpoints of the run.
        state: a fresh state, which receives the checkpoint.
        world: the processes; every process must call this function.

    Returns:
        sentences for the people who follow the run.
    """
    # The contents of large checkpoints are compared with their manifests by one process, for all.
    damaged = store.damaged() if world.first else []
    remarks = [
        f"{path} is not whole (a write was cut off, or it was changed afterwards) and is not used" for path in damaged
    ]
    written = store.written()
    whole = [checkpoint.step for checkpoint in written if checkpoint.path not in damaged]
    step = world.gather(max(whole, default=None))[0]
    checkpoint = next((checkpoint for checkpoint in written if checkpoint.step == step), None)
    steps = world.gather(None if checkpoint is None else checkpoint.step)
    assert set(steps) == {step}, "processes see different checkpoints"
    length = 0
    if checkpoint is None:
        remarks.append("no whole checkpoint was found: the run starts again from the beginning")
    else:
        record = checkpoint.load()
        with restoring(f"{checkpoint.path} does not fit this run", "resume with what the run began with"):
            state.reference = ReferencePolicy(reference_config(record["reference"]), state.learner)
            state.restore(record, world)
        if (num_processes := len(record["generators"])) != world.size:
            remarks.append(
                f"the checkpoint is of {num_processes} process{'es' * (num_processes > 1)} and this is a run of"
                f" {world.size}: the run goes on, but dropout draws other numbers and sums round otherwise, so it does"
                " not repeat the uninterrupted run bit for bit"
            )
        length = record["metrics_length"]
        remarks.append(f"resumed at step {state.progress.step}")
    world.barrier()
    if world.first:
        store.clear_damaged(damaged)
        if MetricsFile(folder.metrics).cut_back(length):
            remarks.append(
                f"{folder.metrics} is shorter than the checkpoint says: rows up to step {state.progress.step} are lost;"
                " the run itself goes on as if they were there"
            )
        run_folder.forget_after(folder, -1 if checkpoint is None else state.progress.step)
    return remarks


@dataclass(frozen=True)
class Result:
    """The outcome of a run.

    Args:
        folder: the run folder.
        summary: the content of `summary.json`; empty after an interrupt.
        interrupted: whether an interrupt ended the run early; `groupwise resume` continues.
        signal: the number of the signal that this process received; 0 otherwise.
        before_step, after_step: the steps of the evaluations that gave `before` and `after` in the summary; their
            records are in `rollouts/evaluation-STEP.jsonl`.

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

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of `metrics.jsonl`, one a step."""
        return list(read_metrics(self.folder.metrics))

    def __getattr__(self, name: str) -> Any:
        """Returns a method that a package brings by an entry point of `groupwise.results`: `report()`, `doctor()`."""
        if name.startswith("_") or (method := brought("groupwise.results", name)) is None:
            raise AttributeError(f"a result has no {name!r}")
        return partial(method, self.folder.path)

    def __repr__(self) -> str:
        values = ", ".join(f"{key}={value!r}" for key, value in self.summary.items() if not isinstance(value, Mapping))
        return f"Result({str(self.folder.path)!r}, {values or 'not ended'})"

    def _repr_html_(self) -> str | None:
        html = brought("groupwise.results", "html")
        return None if html is None else html(self.folder.path)


def train(job: Job, path: Path | str) -> Result:
    """Trains a run from the beginning.

    Args:
        job: the resolved description of the run.
        path: a folder that is empty or absent.

    Raises:
        ConfigError: the job, the folder or the domain is unusable; nothing was computed.
        StorageError: the disk is full; the message names the newest checkpoint.

    Example:
        >>> train(Job("nothing", 0, [], build_domain=None), "runs/nothing")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: stages: there is none; give train.num_steps or at least one stage
    """
    distributed.check_group()
    preflight.check_configuration(job)
    preflight.check_processes(job)
    preflight.try_pieces(job)
    folder = RunFolder(Path(path))
    if is_first_process():
        run_folder.check_new(folder.path)
        try:
            run_folder.write_json(folder.config, job.resolved, replace=False)
        except FileExistsError:
            run_folder.check_new(folder.path)  # Another process began a run in the folder since the check above.
    return _run(job, folder, resumed=False)


def resume(job: Job, path: Path | str) -> Result:
    """Goes on from the newest whole checkpoint, or from the beginning where there is none yet. The end is that of an
    uninterrupted run.

    A run that has ended is left as it is.

    Args:
        job: the resolved description with which the run began.

    Raises:
        ConfigError: there is no run in the folder.
        StorageError: the disk is full; the message names the newest checkpoint.

    Example:
        >>> from groupwise.objective import Objective
        >>> from groupwise.training.job import Recipe
        >>> resume(Job("lost", 0, [Recipe("grpo", Objective.preset("grpo"))], build_domain=None), "nowhere")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: run folder nowhere: it holds no run (no config.json); give the folder that `groupwise train` printed
    """  # noqa: E501
    distributed.check_group()
    preflight.check_configuration(job)
    folder = run_folder.open_existing(Path(path))
    return _ended(job, folder) if folder.summary.is_file() else _run(job, folder, resumed=True)


def _ended(job: Job, folder: RunFolder) -> Result:
    """Returns the outcome of a run that has already ended, and removes files that a kill after its summary left."""
    store = CheckpointStore(folder.checkpoints, job.checkpoint)
    with run_folder.locked(folder):
        _tidy(folder, store)
    summary = read_json(folder.summary)
    newest = store.latest()
    progress = (
        Progress.from_record(newest.load()["progress"])
        if newest is not None
        else Progress(latest_step=summary["steps"])
    )
    return Result(folder, summary, before_step=progress.before_step, after_step=progress.latest_step)


def _tidy(folder: RunFolder, store: CheckpointStore) -> None:
    """Cleans the folder of an ended run. This removes the starting state of its controls, the remains of unfinished
    writes, and older checkpoints that a kill left.
    """
    store.prune()
    start = folder.checkpoints / stages.START
    if start.is_dir():
        remove_folder(start)
    clear_unfinished_writes(folder.path)


@dataclass(frozen=True)
class _Process:
    """The part of a run that stays the same on one process from its start to its end.

    Args:
        folder: the run folder.
        device: the device of this process.
        world: the place of this process among its peers.
        streams: the random streams of the run.
        store: the checkpoints of the run.
    """

    folder: RunFolder
    device: torch.device
    world: distributed.World
    streams: Streams
    store: CheckpointStore


def _run(job: Job, folder: RunFolder, *, resumed: bool) -> Result:
    """Runs the stages that are not finished, saves the model, trains the controls, and writes the summary."""
    with _on_process(job, folder) as process, _opened(job, process, resumed=resumed) as (session, job, state, domains):
        folder, gather = session.folder, session.world.gather
        if not stages.run_stages(session, job, state, domains):
            loop.save(session, state)
            measured = f"`groupwise evaluate {folder.path}` measures it as it is"
            session.note(f"ended at step {state.progress.step}; {_resume(folder, job)} goes on, and {measured}")
            return Result(folder, {}, interrupted=True, signal=session.interrupt.signal)
        if gather(not folder.model.exists())[0]:
            loop.write_model(session, domains.base, state, folder.model)
        _tabulate(session, job, state, domains)
        baseline, ended = stages.run_controls(session, job, state, domains)
        if not ended:
            session.note(f"ended during the controls; the model is saved, and {_resume(folder, job)} goes on with them")
            return Result(folder, {}, interrupted=True, signal=session.interrupt.signal)
        return _finish(session, job, state, baseline)


@contextmanager
def _on_process(job: Job, folder: RunFolder) -> Iterator[_Process]:
    """Joins the processes of the run, takes the device of this one, and locks the folder."""
    train = job.recipes[0].train
    device = preflight.device_of(job.recipes[0])
    world = distributed.connect(device, alone=train.sharding == "full")
    if device.type == "cpu":
        torch.set_num_threads(train.num_threads)
    try:
        with world.reporting_errors():
            device = device_of_process(device, world)
            folder = loop.agreed_folder(job, folder, world)
            store = CheckpointStore(folder.checkpoints, job.checkpoint)
            try:
                with exact_arithmetic(train, device), run_folder.locked(folder) if world.first else nullcontext():
                    if world.first:
                        clear_unfinished_writes(folder.path)
                    yield _Process(folder, device, world, Streams(job.seed), store)
            except StorageError as error:
                saved = store.safety_note()
                if saved in str(error):
                    raise
                raise StorageError(f"{error} {saved}") from error
    finally:
        distributed.disconnect(world)


@contextmanager
def _opened(job: Job, process: _Process, *, resumed: bool) -> Iterator[tuple[loop.Session, Job, TrainState, Domains]]:
    """Builds the domains and the state, restores what a continued run has saved, and opens the trackers. If an error
    occurs, the run reports from which step it can be continued.
    """
    folder, world, store = process.folder, process.world, process.store
    # The first process alone writes the folder. What it found there counts for all: another process may have looked
    # after it wrote.
    resumed = world.gather(resumed)[0]
    progress = Progress()
    silence = Silence(lambda: progress.doing, partial(print, flush=True))
    with ExitStack() as opened:
        if is_shown := world.first and job.track.console != "none":
            opened.enter_context(closing(silence))
            silence.begin()
        with progress.timed("setup"):
            domains, job = _build(job, process, opened, resumed=resumed)
            domain = domains.base
            state = TrainState(progress, job.recipes[0].objective.init(), domain.learner)
            silence.doing = lambda: state.progress.doing
        evaluated_on = domains.evaluated_on(job.recipes)
        remarks = restore_newest(store, folder, state, world) if resumed else []
        if job.start is not None and state.progress.step == 0:
            remarks += stages.begin_at(job, state, domain, world)
        if world.first:
            remarks += run_folder.append_environment(
                folder,
                seed=job.seed,
                device=process.device,
                num_processes=world.size,
                remarks=rewards.remarks if (rewards := rewards_of(domain)) is not None else [],
                evaluated_on=evaluated_on,
                sources=job.sources(),
            )
        trackers = _trackers(job, process, state.progress, evaluated_on)
        if is_shown:
            silence.follow(trackers)
        opened.pop_all()  # The block below closes the domains.
    with (
        returned.naming_failed_method(domain),
        loop.listening(trackers.note) as interrupt,
        closing(domains),
        closing(trackers),
    ):
        session = _session(job, process, state, domain, trackers, interrupt)
        remarks += [*job.remarks, *domains.remarks(job.recipes), *preflight.precision_remarks(domain)]
        for remark in [*remarks, *preflight.idle_remarks(job.recipes, domain.num_prompts)]:
            session.note(remark)
        if resumed and session.metrics is not None and session.watch is not None:
            # What live diagnosis says of the rows that exist was reported before.
            for row in read_metrics(session.metrics.path):
                session.watch.see(row)
        # The others are told before anything is closed, which may take long, and whose method it was.
        with (
            _reporting_resume_step(session, job, state),
            world.reporting_errors(),
            returned.naming_failed_method(domain),
        ):
            yield session, job, state, domains


def _session(
    job: Job, process: _Process, state: TrainState, domain: Domain, trackers: Trackers, interrupt: loop.Interrupt
) -> loop.Session:
    # A run that continues has used some of its time before.
    used = sum(state.progress.seconds.values())
    return loop.Session(
        domain=domain,
        streams=process.streams,
        world=process.world,
        device=process.device,
        folder=process.folder,
        metrics=MetricsFile(process.folder.metrics) if process.world.first else None,
        trackers=trackers,
        store=process.store,
        interrupt=interrupt,
        watch=None if (watch := find("Watch")) is None else watch(job.resolved),
        track=job.track,
        ends_at=math.inf if job.minutes is None else perf_counter() + 60 * job.minutes - used,
    )


@contextmanager
def _reporting_resume_step(session: loop.Session, job: Job, state: TrainState) -> Iterator[None]:
    """If an error or a second interrupt occurs, reports the step from which the run can be continued."""
    assert session.store is not None
    try:
        yield
    except StorageError:
        raise
    except (KeyboardInterrupt, Exception) as error:
        written, step = session.store.written(), state.progress.step
        goes_on = f"goes on from step {written[-1].step}" if written else "begins again: nothing was saved yet"
        at_once = isinstance(error, KeyboardInterrupt)
        if at_once or written:
            ended = f"ended at once, after step {step};" if at_once else f"an error ended the run after step {step};"
            session.note(f"{ended} {_resume(session.folder, job)} {goes_on}")
        raise


def _resume(folder: RunFolder, job: Job) -> str:
    launcher, consent = "torchrun ... -m " if is_launched() else "", " --run-code" if job.sources() else ""
    return f"`{launcher}groupwise resume {folder.path}{consent}`"


def _tabulate(session: loop.Session, job: Job, state: TrainState, domains: Domains) -> None:
    """Writes the tables that the result is compared with, where the domain makes such tables; once, on the first
    process.
    """
    domain = domains.of(job.recipes[-1])
    if not isinstance(domain, Tabulates):
        return
    state.learner.eval()
    with state.progress.timed("tables"), state.averaged(), state.learner.gathered(), torch.no_grad():
        if session.world.first and not session.folder.tables.exists():
            tables = returned.checked_tables(domain.tables(streams=session.streams))
            if tables:
                with new_folder(session.folder.tables) as partial:
                    rollout_records.write_tables(partial, tables)
    session.world.barrier()


def _build(job: Job, process: _Process, opened: ExitStack, *, resumed: bool) -> tuple[Domains, Job]:
    """Builds the domain of every stage, and returns it with the job for the domain's kind of decisions.

    Args:
        opened: closes the domains where the run does not begin.
    """
    seed_everything(job.seed)
    domains = opened.enter_context(closing(Domains(job.build_domain(process.device))))
    job = job.on(density=domains.base.density)
    with returned.naming_failed_method(domains.base):
        for recipe in [*job.recipes, *(recipe for recipes in job.controls.values() for recipe in recipes)]:
            preflight.check_memory(recipe, process.device)
            preflight.check_domain(domains.of(recipe), recipe, process.streams, process.world)
        if job.tries_domain and not resumed:
            for domain in domains.that_sample(job.recipes):
                returned.check_first_batch(domain, process.streams)
        loop.check_same_start(domains.base, process.world)
    job = job.fitted(domains)
    if job.recipes[0].train.sharding == "full" and process.world.joined:
        message = (
            'train.sharding = "full": memory ran out while the weights were spread; write domain.model.dtype ='
            " bfloat16, or take a smaller model or a larger device"
        )
        with running_out(message):
            domains.base.learner.shard(process.device)
    seed_everything(process.streams.seed("global", process.world.rank))
    return domains, job


def _trackers(job: Job, process: _Process, progress: Progress, evaluated_on: EvaluatedOn) -> Trackers:
    # The steps up to the current stage, and all of this stage and the stages after it.
    left = sum(recipe.train.num_steps for recipe in job.recipes[progress.stage :])
    try:
        return open_trackers(
            job.track,
            process.folder.path,
            total_steps=progress.step - progress.stage_step + left,
            score=job.recipes[-1].train.metric,
            resolved=job.resolved,
            start=progress.step,
            # Before the first evaluation the trackers have received no step, so that step 0 is still to come.
            first_step=progress.step + (progress.latest_step >= 0),
            latest=progress.latest,
            evaluated_on=evaluated_on,
            first_process=process.world.first,
        )
    except OSError as error:
        raise atomic.storage_error(process.folder.path, error) from error


def _finish(session: loop.Session, job: Job, state: TrainState, baseline: float | None) -> Result:
    progress = state.progress
    summary = run_folder.summarise(
        progress, evaluation.metric_name(job.recipes[-1].train, progress.latest), baseline, job.seed
    )
    if session.world.first:
        run_folder.write_json(session.folder.summary, summary)
        if session.store is not None:
            _tidy(session.folder, session.store)
        if job.track.curves and (draw := find("write_curves")) is not None:
            try:
                require("report", "track.curves")
                session.note(f"the curves of the run are in {draw(session.folder.path)}")
            except ConfigError as error:
                session.note(str(error))
    session.world.barrier()
    return Result(session.folder, summary, before_step=progress.before_step, after_step=progress.latest_step)
