"""The stages of a run, one after the other: each begins with its reference and an evaluation, and ends with an
evaluation and a checkpoint.
"""

from __future__ import annotations

import json

from groupwise.checkpoint import new_folder, save_tree
from groupwise.reference import AbsentReference, ReferenceConfig, resolve_reference
from groupwise.reference.policy import ReferencePolicy
from groupwise.training.distributed import World
from groupwise.training.job import Domains, Job, Recipe
from groupwise.training.run.evaluation import PREFIX, evaluate, metric_name
from groupwise.training.run.loop import Session, autocast_of, evaluate_now, keep_best_model, keep_model, run_stage, save
from groupwise.training.run.warm_up import WarmUp, copy_records, keep_warm_up, load_warm_up, measured_key, warm_up_key
from groupwise.training.step.reward_history import RewardHistory
from groupwise.training.step.reward_memory import recall
from groupwise.training.step.state import TrainState

START = "start"
"""Where controls begin: the state at the first stage that samples, in `checkpoints/start`."""


def run_stages(session: Session, job: Job, state: TrainState, domains: Domains) -> bool:
    """Runs every stage that is not done yet; false when somebody asked to end before.

    Args:
        session: of the run.
        job: of the run.
        state: goes on from where it stands.
        domains: of the run.

    Returns:
        whether every stage is done.
    """
    while state.progress.stage < len(job.recipes):
        index = state.progress.stage
        recipe = job.recipes[index]
        session.domain = domains.of(recipe)
        fresh = state.progress.stage_step == 0 and not state.progress.stage_ended
        key = warm_up_key(domains.base, job.recipes[: index + 1], job.seed, session.device, session.world)
        if fresh and key is not None and _restore_warm_up(session, job, state, index, key):
            continue
        state.learner.checkpoint_activations(recipe.train.gradient_checkpointing)
        recall(session.domain, state)
        if fresh:
            _begin(session, job, state, index, domains)
        if not run_stage(session, recipe, state):
            return False
        _end(session, recipe, state, job, index, key)
    return True


def stage_reference(recipe: Recipe) -> ReferenceConfig:
    """The reference of a stage; one that samples nothing compares with nothing.

    Args:
        recipe: the stage.

    Raises:
        ConfigError: a reference is configured and without use, or needed and absent.
    """
    return resolve_reference(recipe.reference, required=recipe.needs_reference) if recipe.samples else AbsentReference()


def first_sampling(job: Job) -> int:
    """The place of the first stage that samples; 0 where none does.

    Args:
        job: of the run.
    """
    return next((place for place, recipe in enumerate(job.recipes) if recipe.samples), 0)


def _begin(session: Session, job: Job, state: TrainState, index: int, domains: Domains) -> None:
    recipe, progress = job.recipes[index], state.progress
    if recipe.optimiser.moments == "fresh":
        state.learner.forget_moments()
    config = stage_reference(recipe)
    if config != state.reference.config:
        state.reference = ReferencePolicy(config, state.learner)
        progress.reference_step, progress.reference_mixed = 0, progress.step
    state.begin_average(recipe.train.weight_average)
    state.history = RewardHistory(RewardHistory.needed(recipe), state.history.rewards)
    otherwise = _measures_otherwise(session, job, state, index)
    name = metric_name(recipe.train, progress.latest)
    # Early stopping measures gains from where the stage begins.
    progress.anchor, progress.evaluations_without_gain = progress.latest.get(name) if name else None, 0
    if otherwise or index == first_sampling(job):
        # What counts as best is measured from here: scores of another measure say nothing, and a warm-up may come from
        # another run, without its model.
        written = progress.best_step == progress.step and session.folder.best.exists()
        progress.best, progress.best_step = progress.latest.get(name) if name else None, progress.step
        if not written:
            keep_best_model(session, state)
    if index == first_sampling(job):
        progress.before, progress.before_step = _before(session, job, state, index, domains), progress.step
        if job.controls and session.world.first:
            with new_folder(session.folder.checkpoints / START, replace=True) as partial:
                save_tree(partial, state.record(World(), 0))
    if progress.step == 0:
        save(session, state)


def _measures_otherwise(session: Session, job: Job, state: TrainState, index: int) -> bool:
    """Evaluates where a stage begins, unless the stage before has done it in the same way; whether the stage's scores
    are no longer those from before.
    """
    recipe, progress = job.recipes[index], state.progress
    measured, before = progress.latest_step == progress.step, dict(progress.latest)
    previous = job.recipes[index - 1] if index else recipe
    if not measured or recipe.measures != previous.measures:
        values, _ = evaluate_now(session, recipe, state)
        # Most settings of a domain leave the numbers of its evaluations alone; then nothing new was learnt.
        if not measured or progress.latest != before:
            session.row(progress.step, recipe.name, values)
    chosen = [(each.train.metric, each.train.metric_goal) for each in (previous, recipe)]
    return chosen[0] != chosen[1] or (measured and progress.latest != before)


def _before(session: Session, job: Job, state: TrainState, index: int, domains: Domains) -> dict[str, float]:
    """Metrics of an evaluation where sampling begins, measured as those of the run's end will be."""
    progress, last = state.progress, job.recipes[-1]
    own = dict(progress.latest)
    if last.measures == job.recipes[index].measures:
        return own
    domain = domains.of(last)
    recall(domain, state)
    with autocast_of(last, session.device)(), state.averaged():
        found = evaluate(domain, progress, session.streams, session.world)
    recall(session.domain, state)
    progress.latest = own
    if found.metrics != own:
        session.say(
            f"stages {job.recipes[index].name} and {last.name} are evaluated in different ways; what the summary calls"
            f" before is measured as {last.name} is"
        )
    return dict(found.metrics)


def _end(session: Session, recipe: Recipe, state: TrainState, job: Job, index: int, key: str | None) -> None:
    progress = state.progress
    if progress.stage_ended:
        session.say(f"stage {recipe.name} ended at step {progress.step}: {progress.stage_ended}")
    if progress.latest_step != progress.step:
        values, _ = evaluate_now(session, recipe, state)
        session.row(progress.step, recipe.name, values)
    if recipe.samples:
        progress.sampled_seconds += progress.stage_seconds
    progress.stage, progress.stage_step, progress.stage_seconds, progress.stage_ended = index + 1, 0, 0.0, ""
    progress.evaluations_without_gain = progress.micro_batch_members = progress.measured_decisions = (
        progress.group_size
    ) = 0
    own = state.objective
    if index + 1 < len(job.recipes):
        state.objective = job.recipes[index + 1].objective.adopt(state.objective, recipe.objective)
        keep_model(session, state)
    save(session, state, best=progress.best_step == progress.step)
    if key is not None:
        # What is kept knows nothing of the stage that follows in this run: another one may follow in the next.
        record = {**state.record(session.world, 0), "objective": own.model_dump(mode="json")}
        measured = measured_key(session.domain, job.recipes[: index + 1])
        problem = (
            keep_warm_up(key, measured, record, session.folder.metrics, session.folder.rollouts)
            if session.world.first
            else None
        )
        if problem:
            session.say(problem)


def _restore_warm_up(session: Session, job: Job, state: TrainState, index: int, key: str) -> bool:
    recipe, progress = job.recipes[index], state.progress
    with progress.timed("warm_up"):
        kept = load_warm_up(key)
    if not all(session.world.gather(kept is not None)):
        return False
    assert kept is not None
    measured = all(session.world.gather(kept.measured == measured_key(session.domain, job.recipes[: index + 1])))
    if not measured and progress.latest_step != progress.step:
        values, _ = evaluate_now(session, recipe, state)
        session.row(progress.step, recipe.name, values)
    first = dict(progress.latest), progress.latest_step
    with progress.timed("warm_up"):
        state.reference = ReferencePolicy(AbsentReference(), state.learner)
        state.restore(kept.record, session.world)
    spent = state.progress.seconds.get("warm_up", 0.0)
    state.progress.seconds = dict(progress.seconds)
    # The state of this run's own objective, whatever method the kept run had: nothing was observed in a stage without
    # samples.
    own = recipe.objective.init().model_copy(update={"step": state.objective.step})
    state.objective = (
        job.recipes[index + 1].objective.adopt(own, recipe.objective) if index + 1 < len(job.recipes) else own
    )
    if measured:
        if session.world.first:
            session.folder.metrics.write_text("".join(json.dumps(row) + "\n" for row in kept.rows), encoding="utf-8")
            copy_records(kept.files, session.folder.rollouts)
    else:
        _measure_anew(session, job, state, index, kept, first)
    again = "" if measured else "; the numbers of evaluations are measured anew"
    # Its steps were followed in the run that took them; where it ended is where this run's trackers begin.
    session.trackers.metrics(
        state.progress.step, {PREFIX + name: value for name, value in state.progress.latest.items()}
    )
    session.say(
        f"stage {recipe.name}: the result of an earlier run is used, which took {spent:.0f} s; nothing that it depends"
        f" on has changed{again}"
    )
    if index + 1 < len(job.recipes):
        keep_model(session, state)
    save(session, state)
    return True


def _measure_anew(
    session: Session, job: Job, state: TrainState, index: int, kept: WarmUp, first: tuple[dict[str, float], int]
) -> None:
    """The rows of a kept stage with the numbers of this run's own evaluation at its end; those inside it are gone with
    the weights they were of.
    """
    recipe, progress = job.recipes[index], state.progress
    progress.score = progress.best = progress.anchor = None
    progress.best_step = -1
    if index == first_sampling(job):
        progress.before, progress.before_step = first
    trained = [
        {name: value for name, value in row.items() if not name.startswith(PREFIX)}
        for row in kept.rows
        if row["stage"] == recipe.name
    ]
    *rows, last = [row for row in trained if set(row) - {"step", "stage"}]
    for row in rows:
        if session.metrics is not None:
            session.metrics.append(row)
    values, _ = evaluate_now(session, recipe, state)
    session.row(
        progress.step,
        recipe.name,
        {name: value for name, value in last.items() if name not in ("step", "stage")} | values,
    )
