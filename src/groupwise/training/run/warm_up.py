"""The state after the leading stages that sample nothing: every run writes it into its folder, and another run may
start from it (`start = "runs/A"`).
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from groupwise import streams
from groupwise.checkpoint import CheckpointConfig, CheckpointStore, StorageError
from groupwise.config import ConfigError
from groupwise.domain.base import Domain
from groupwise.processes import is_out_of_memory
from groupwise.reference.policy import ReferencePolicy
from groupwise.runs import RunFolder
from groupwise.runs.folder import run_to_start_from
from groupwise.training.distributed import World
from groupwise.training.job import Job
from groupwise.training.progress import Progress
from groupwise.training.run.loop import Session
from groupwise.training.step.state import TrainState, reference_config


def write_warm_up(session: Session, job: Job, state: TrainState) -> None:
    """Writes the state at the end of a run's warm-up into `RUN/warm_up`; every process must call it.

    A run that started at this step has done no warm-up, and writes nothing. On a full disk the run says one sentence
    and goes on.

    Args:
        state: the state of the run before the first stage that samples.
    """
    progress = state.progress
    if progress.step == progress.start_step:
        return
    stages = [recipe.name for recipe in job.recipes[: progress.stage]]
    record = {
        **state.record(session.world, 0),
        "seed": job.seed,
        "stages": stages,
        "vocabulary": session.domain.vocabulary,
    }
    try:
        _store(session.folder).save(progress.step, record, peers=session.world)
    except StorageError as error:
        session.say(f"no other run can start from this warm-up, which could not be written: {error}")
        return
    if not session.world.first:
        return
    start_argument = shlex.quote(f"start={session.folder.path}")
    session.say(f"the warm-up has ended at step {progress.step}; {start_argument} starts another run here, without it")


def begin_at(job: Job, state: TrainState, domain: Domain, world: World) -> list[str]:
    """Sets a fresh state to the end of the warm-up of the run `job.start`: weights, moments, average and counters. The
    stages that follow compute what they would have computed in that run.

    Leading stages that sample nothing are left out where the run `job.start` has finished a stage of the same name. Its
    evaluations are not taken over: the new run measures its start itself.

    Args:
        state: a fresh state, which receives the warm-up.
        world: the processes; with another number of processes dropout draws other numbers.

    Returns:
        sentences for the people who follow the run.

    Raises:
        ConfigError: the folder holds no warm-up, its model is another one, or no stage is left to train.
    """
    assert job.start is not None
    record = read_warm_up(job.start)
    finished_stages = set(record["stages"])
    stage = 0
    while stage < len(job.recipes) and not job.recipes[stage].samples and job.recipes[stage].name in finished_stages:
        stage += 1
    if stage == len(job.recipes):
        raise ConfigError(
            f"start = {job.start!r}: that run has done every stage of this one ({', '.join(sorted(finished_stages))});"
            " add a stage that samples, or leave start out"
        )
    _restore_weights(job.start, record, domain)
    state.average = ReferencePolicy(reference_config(record["average"]), state.learner)
    state.average.restore(record["average"])
    progress = Progress.from_record(record["progress"])
    state.progress = replace(
        progress,
        stage=stage,
        start_step=progress.step,
        sampled_seconds=0.0,
        before={},
        before_step=0,
        latest={},
        latest_step=-1,
        score=None,
        best=None,
        best_step=-1,
        anchor=None,
        seconds=state.progress.seconds,
    )
    objective = job.recipes[stage].objective
    if stage:
        previous = job.recipes[stage - 1].objective
        state.objective = objective.adopt(previous.init(), previous)
    else:
        state.objective = objective.init()
    if record["seed"] == job.seed and len(record["generators"]) == world.size:
        streams.restore(record["generators"][world.rank])
    skipped = ", ".join(recipe.name for recipe in job.recipes[:stage])
    left_out = f"; {skipped} is not trained again" if skipped else ""
    return [f"this run starts where the warm-up of {job.start} ended, at step {progress.step}{left_out}"]


def load_weights(start: str, domain: Domain) -> None:
    """Gives a domain the weights of the end of a run's warm-up.

    Args:
        domain: a domain with the same model.

    Raises:
        ConfigError: the folder holds no warm-up, or that of another model.
    """
    _restore_weights(start, read_warm_up(start), domain)


def read_warm_up(start: str) -> dict[str, Any]:
    """Reads the state after the warm-up of a run.

    Raises:
        ConfigError: the folder holds no run, or no whole warm-up.
    """
    folder = run_to_start_from(start)
    point = _store(folder).latest()
    if point is None:
        raise ConfigError(
            f"start = {start!r}: that run holds no warm-up (no whole {folder.warm_up}); give a run whose first stage"
            " samples nothing and has ended, or leave start out"
        )
    return point.load()


def _restore_weights(start: str, record: dict[str, Any], domain: Domain) -> None:
    """Gives a domain the weights and moments of a record; refuses a record of another model or vocabulary."""
    if record["vocabulary"] != domain.vocabulary:
        raise ConfigError(
            f"start = {start!r}: its tokenizer has other words than the tokenizer of this run; give a run of the same"
            " data and tokenizer, or leave start out"
        )
    try:
        domain.learner.restore(record["learner"])
    except Exception as error:  # a learner refuses the weights of another model in words of its own
        if is_out_of_memory(error):
            raise
        reason = " ".join((str(error) or type(error).__name__).split())[:300]
        raise ConfigError(
            f"start = {start!r}: its weights do not fit the model of this run ({reason}); give a run of the same model"
        ) from error


def _store(folder: RunFolder) -> CheckpointStore:
    return CheckpointStore(folder.warm_up, CheckpointConfig(keep_last=1, keep_best=False))
