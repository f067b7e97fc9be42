"""The stages of a run in order: each begins with its reference and an evaluation, and ends with an evaluation and a
checkpoint.
"""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from groupwise import streams
from groupwise.checkpoint import CheckpointConfig, CheckpointStore, StorageError, load_tree, remove_folder, write_record
from groupwise.config import ConfigError, read_json
from groupwise.domain.base import Domain
from groupwise.domain.returned import check_metric
from groupwise.objective import ObjectiveState
from groupwise.reference import (
    AbsentReference,
    QualityGateReference,
    ReferenceConfig,
    ReferencePolicy,
    resolve_reference,
)
from groupwise.runs import RunFolder
from groupwise.runs.folder import run_to_start_from
from groupwise.track import MetricsFile, Trackers
from groupwise.track.tracker import same_decimals
from groupwise.training.distributed import World
from groupwise.training.job import Domains, Job, Recipe
from groupwise.training.run import loop, run_folder
from groupwise.training.run.evaluation import evaluate, metric_name
from groupwise.training.step.passes import fit_passes, restore_passes
from groupwise.training.step.state import Progress, TrainState, ready_rewards, reference_config, restoring, rewards_of

# The state after the leading stages that sample nothing: every run writes it into its folder, and another run may
# start from it (`start = "runs/A"`).


def write_warm_up(session: loop.Session, job: Job, state: TrainState) -> None:
    """Writes the state at the end of a run's warm-up into `RUN/warm_up`; every process must call it.

    A run that started at this step has done no warm-up, and writes nothing. On a full disk the run reports one sentence
    and continues.

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
        session.note(f"no other run can start from this warm-up, which could not be written: {error}")
        return
    if not session.world.first:
        return
    start_argument = shlex.quote(f"start={session.folder.path}")
    session.note(f"the warm-up has ended at step {progress.step}; {start_argument} starts another run here, without it")


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
    with restoring(f"start = {start!r}: its weights do not fit the model of this run", "give a run of the same model"):
        domain.learner.restore(record["learner"])


def _store(folder: RunFolder) -> CheckpointStore:
    return CheckpointStore(folder.warm_up, CheckpointConfig(keep_last=1, keep_best=False))


START = "start"
"""The name of the folder in `checkpoints/` with the state at the first stage that samples, where controls begin."""


def run_stages(session: loop.Session, job: Job, state: TrainState, domains: Domains) -> bool:
    """Runs every stage that is not finished.

    Args:
        state: the state of the run, which the stages change.

    Returns:
        false when an interrupt ended the stages early.
    """
    while state.progress.stage < len(job.recipes):
        index = state.progress.stage
        recipe = job.recipes[index]
        session.domain = domains.of(recipe)
        fresh = state.progress.stage_step == 0 and not state.progress.stage_ended
        state.learner.checkpoint_activations(recipe.train.gradient_checkpointing)
        if "optimisers" in state.learner.offers:
            state.learner.use_optimiser(recipe.optimiser.source)
        if (rewards := rewards_of(session.domain)) is not None:
            ready_rewards(rewards, state, recipe, session.domain.num_prompts)
        if not fresh:
            loop.forget_last_rollouts(session, state.progress)
            restore_passes(session.domain, state.progress)
        if fresh:
            if index == first_sampling(job):
                write_warm_up(session, job, state)
            _begin(session, job, state, index, domains)
        if not loop.run_stage(session, recipe, state):
            return False
        _end(session, recipe, state, job, index)
    if not any(recipe.samples for recipe in job.recipes):
        write_warm_up(session, job, state)
    return True


def stage_reference(recipe: Recipe) -> ReferenceConfig:
    """Returns the reference of a stage; a stage that samples nothing has none.

    Raises:
        ConfigError: a configured reference has no use, or a needed reference is absent.
    """
    return resolve_reference(recipe.reference, required=recipe.needs_reference) if recipe.samples else AbsentReference()


def first_sampling(job: Job) -> int:
    """Returns the place of the first stage that samples; 0 where none does."""
    return next((place for place, recipe in enumerate(job.recipes) if recipe.samples), 0)


def _begin(session: loop.Session, job: Job, state: TrainState, index: int, domains: Domains) -> None:
    recipe, progress = job.recipes[index], state.progress
    if recipe.optimiser.moments == "fresh":
        state.learner.forget_moments()
    config = stage_reference(recipe)
    if config != state.reference.config:
        state.reference = ReferencePolicy(config, state.learner)
        progress.reference_step, progress.reference_mixed = 0, progress.step
    state.begin_average(recipe.train.weight_average)
    fit_passes(session.domain, state, session.world)
    state.memory.begin_stage(recipe, session.domain)
    is_measured_differently = _is_measured_differently(session, job, state, index)
    if job.tries_domain:
        # A domain of ours leaves a metric out where its reward is missing everywhere, which later evaluations may mend.
        check_metric(session.domain, recipe.train.metric, list(progress.latest))
    name = metric_name(recipe.train, progress.latest)
    if isinstance(config, QualityGateReference) and (name is None or name not in progress.latest):
        session.note(
            f"reference.kind = {config.kind!r} compares scores, and evaluations here give none: nothing is refused"
        )
    # Early stopping measures gains from the start of the stage.
    progress.anchor, progress.evaluations_without_gain = progress.latest.get(name) if name else None, 0
    if is_measured_differently or index == first_sampling(job):
        # The best score is measured from this step on: earlier scores may be of another metric, and a warm-up may come
        # from another run, whose model is not in this folder.
        # The first process writes the folder, perhaps while another one looks.
        best_is_written = session.world.gather(progress.best_step == progress.step and session.folder.best.exists())[0]
        progress.best, progress.best_step = progress.latest.get(name) if name else None, progress.step
        if not best_is_written:
            loop.keep_best_model(session, state)
    if index == first_sampling(job):
        progress.before, progress.before_step = _metrics_before(session, job, state, index, domains), progress.step
        if job.controls:
            record = state.record(session.world, 0)
            write_record(session.folder.checkpoints / START, record, session.world)
    if progress.step == progress.start_step:
        loop.save(session, state)


def _is_measured_differently(session: loop.Session, job: Job, state: TrainState, index: int) -> bool:
    """Evaluates at the start of a stage, unless the previous stage ended with the same evaluation. Returns whether
    scores from here on cannot be compared with earlier ones.
    """
    recipe, progress = job.recipes[index], state.progress
    is_evaluated, metrics_before = progress.latest_step == progress.step, dict(progress.latest)
    previous = job.recipes[index - 1] if index else recipe
    if not is_evaluated or recipe.measures != previous.measures:
        values, _ = loop.evaluate_now(session, recipe, state)
        # Most settings of a domain do not change the numbers of its evaluations; equal numbers need no second row.
        if not is_evaluated or progress.latest != metrics_before:
            session.row(progress.step, recipe.name, values)
    goals = [(stage.train.metric, stage.train.metric_goal) for stage in (previous, recipe)]
    return goals[0] != goals[1] or (is_evaluated and progress.latest != metrics_before)


def _metrics_before(
    session: loop.Session, job: Job, state: TrainState, index: int, domains: Domains
) -> dict[str, float]:
    """Returns the metrics at the start of sampling, measured in the same way as at the end of the run."""
    progress, last = state.progress, job.recipes[-1]
    stage_metrics = dict(progress.latest)
    if last.measures == job.recipes[index].measures:
        return stage_metrics
    domain = domains.of(last)
    rewards = rewards_of(domain)
    if rewards is not None:
        ready_rewards(rewards, state, last, domain.num_prompts)
    with loop.autocast_of(last, session.device), state.averaged():
        evaluation = evaluate(domain, progress, session.streams, session.world)
    progress.latest = stage_metrics
    if evaluation.metrics != stage_metrics:
        session.note(
            f"stages {job.recipes[index].name} and {last.name} are evaluated in different ways; what the summary calls"
            f" before is measured as {last.name} is"
        )
    return dict(evaluation.metrics)


def _end(session: loop.Session, recipe: Recipe, state: TrainState, job: Job, index: int) -> None:
    progress = state.progress
    if progress.stage_ended:
        session.note(f"stage {recipe.name} ended at step {progress.step}: {progress.stage_ended}")
    if progress.latest_step != progress.step:
        values, _ = loop.evaluate_now(session, recipe, state)
        session.row(progress.step, recipe.name, values)
    if recipe.samples:
        progress.sampled_seconds += progress.stage_seconds
    if progress.stage_ended == loop.OUT_OF_TIME and (left := [later.name for later in job.recipes[index + 1 :]]):
        session.note(f"left out, as the time is over: {', '.join(left)}")
        index = len(job.recipes) - 1
    progress.stage, progress.stage_step, progress.stage_seconds, progress.stage_ended = index + 1, 0, 0.0, ""
    progress.evaluations_without_gain = progress.micro_batch_members = progress.measured_decisions = 0
    progress.group_size, progress.widest_range = 0, 0.0
    if index + 1 < len(job.recipes):
        state.objective = job.recipes[index + 1].objective.adopt(state.objective, recipe.objective)
        loop.keep_model(session, state)
    loop.save(session, state, best=progress.best_step == progress.step)


# Controls: stages that train in another way from the same start for the same seconds, so that a run's gain can be
# compared.


def run_controls(session: loop.Session, job: Job, state: TrainState, domains: Domains) -> tuple[float | None, bool]:
    """Trains every unfinished control in `RUN/controls/NAME`.

    The module has a control's weights afterwards: the caller saves the run's model first.

    Args:
        state: the state of the run at its end.

    Returns:
        the score of the first control, and false when an interrupt ended the controls early.
    """
    start = session.folder.checkpoints / START
    evaluated_on = domains.evaluated_on(job.recipes)
    scores: list[float | None] = []
    for name in job.controls:
        folder = session.folder.control(name)
        if not folder.has_ended:
            if not start.is_dir():
                session.note(f"control {name} is left out: the state it starts from is gone")
                scores.append(None)
                continue
            session.note(f"control {name}: the same start, the same {state.progress.sampled_seconds:.0f} s")
            record = {**load_tree(start), "generators": []}
            if not _train_control(session, job, domains, name, record, state.progress.sampled_seconds):
                return None, False
        summary = read_json(folder.summary)
        before, after = same_decimals([summary["before"], summary["after"]])
        session.note(f"control {name}: {evaluated_on.of(summary['metric'])} {before} before, {after} after")
        scores.append(summary["after"])
    return (scores[0] if scores else None), True


def _train_control(
    session: loop.Session, job: Job, domains: Domains, name: str, start: Mapping[str, Any], seconds: float
) -> bool:
    """Trains the stages of one control for so many seconds together, from a record of the run's state at its first
    stage that samples, and writes its summary; returns false when an interrupt ended it early.
    """
    recipes = job.controls[name]
    folder, is_first_process = session.folder.control(name), session.world.first
    if is_first_process:
        if folder.path.exists():
            remove_folder(folder.path)
        folder.path.mkdir(parents=True)
    session.world.barrier()
    state = TrainState(Progress(), ObjectiveState(), domains.base.learner)
    # The record holds the reference of the run's stage; a control begins with the reference of its first stage.
    state.restore({**start, "reference": state.reference.state()}, session.world)
    state.progress.seconds = {}
    previous = job.recipes[first_sampling(job)]
    control_session = replace(
        session,
        folder=folder,
        store=None,
        metrics=MetricsFile(folder.metrics) if is_first_process else None,
        trackers=_PrefixedNotes(session.trackers, f"control {name}: "),
        watch=None,  # faults of a control are not faults of the run; `groupwise doctor RUN/controls/NAME` shows them
    )
    for index, recipe in enumerate(recipes):
        # A control ends by its time, not by its steps: its steps may be cheaper, and then it takes more of them.
        timed = replace(
            recipe,
            train=recipe.train.model_copy(
                update={"max_seconds": max(seconds / len(recipes), 1e-3), "num_steps": 10**9}
            ),
        )
        control_session.domain = domains.of(timed)
        state.learner.checkpoint_activations(timed.train.gradient_checkpointing)
        state.reference = ReferencePolicy(stage_reference(timed), state.learner)
        state.begin_average(timed.train.weight_average)
        state.memory.begin_stage(timed, control_session.domain)
        state.objective = timed.objective.adopt(state.objective, previous.objective)
        progress = state.progress
        progress.stage, progress.stage_step, progress.stage_seconds, progress.stage_ended = index, 0, 0.0, ""
        progress.group_size, progress.widest_range = 0, 0.0
        if not loop.run_stage(control_session, timed, state):
            return False
        previous = timed
    last = recipes[-1]
    if state.progress.latest_step != state.progress.step:
        values, _ = loop.evaluate_now(control_session, last, state)
        control_session.row(state.progress.step, last.name, values)
    if is_first_process:
        run_folder.write_json(
            folder.summary,
            run_folder.summarise(state.progress, metric_name(last.train, state.progress.latest), None, job.seed),
        )
    session.world.barrier()
    return True


class _PrefixedNotes(Trackers):
    """The trackers of a control. Its sentences go to the run's trackers with a prefix, and its numbers to the control's
    own `metrics.jsonl`.
    """

    def __init__(self, run_trackers: Trackers, prefix: str) -> None:
        super().__init__([])
        self._run_trackers, self._prefix = run_trackers, prefix

    def note(self, text: str) -> None:
        self._run_trackers.note(self._prefix + text)
