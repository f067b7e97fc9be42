"""The stages of a run, one after the other: each begins with its reference and an evaluation, and ends with an
evaluation and a checkpoint.
"""

from __future__ import annotations

from groupwise.checkpoint import new_folder, save_tree
from groupwise.reference import AbsentReference, ReferenceConfig, resolve_reference
from groupwise.reference.policy import ReferencePolicy
from groupwise.training.distributed import World
from groupwise.training.job import Domains, Job, Recipe
from groupwise.training.run.evaluation import evaluate, metric_name
from groupwise.training.run.loop import Session, autocast_of, evaluate_now, keep_best_model, keep_model, run_stage, save
from groupwise.training.run.warm_up import write_warm_up
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
        state.learner.checkpoint_activations(recipe.train.gradient_checkpointing)
        recall(session.domain, state)
        if fresh:
            if index == first_sampling(job):
                write_warm_up(session, job, state)
            _begin(session, job, state, index, domains)
        if not run_stage(session, recipe, state):
            return False
        _end(session, recipe, state, job, index)
    if not any(recipe.samples for recipe in job.recipes):
        write_warm_up(session, job, state)
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
    if progress.step == progress.start_step:
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


def _end(session: Session, recipe: Recipe, state: TrainState, job: Job, index: int) -> None:
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
    if index + 1 < len(job.recipes):
        state.objective = job.recipes[index + 1].objective.adopt(state.objective, recipe.objective)
        keep_model(session, state)
    save(session, state, best=progress.best_step == progress.step)
