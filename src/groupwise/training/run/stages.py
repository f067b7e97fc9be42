"""The stages of a run in order: each begins with its reference and an evaluation, and ends with an evaluation and a
checkpoint.
"""

from __future__ import annotations

from groupwise.checkpoint import write_record
from groupwise.domain.first_batch import check_metric
from groupwise.reference import AbsentReference, ReferenceConfig, resolve_reference
from groupwise.reference.policy import ReferencePolicy
from groupwise.training.job import Domains, Job, Recipe
from groupwise.training.run.evaluation import evaluate, metric_name
from groupwise.training.run.loop import Session, autocast_of, evaluate_now, keep_best_model, keep_model, run_stage, save
from groupwise.training.run.warm_up import write_warm_up
from groupwise.training.step.pass_sizes import fit_passes, restore_passes
from groupwise.training.step.prompt_values import PromptValues
from groupwise.training.step.reward_history import RewardHistory
from groupwise.training.step.reward_memory import restore_reward_memory
from groupwise.training.step.state import TrainState

START = "start"
"""The name of the folder in `checkpoints/` with the state at the first stage that samples, where controls begin."""


def run_stages(session: Session, job: Job, state: TrainState, domains: Domains) -> bool:
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
        restore_reward_memory(session.domain, state)
        if not fresh:
            restore_passes(session.domain, state.progress)
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
    """Returns the reference of a stage; a stage that samples nothing has none.

    Raises:
        ConfigError: a configured reference has no use, or a needed reference is absent.
    """
    return resolve_reference(recipe.reference, required=recipe.needs_reference) if recipe.samples else AbsentReference()


def first_sampling(job: Job) -> int:
    """Returns the place of the first stage that samples; 0 where none does."""
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
    fit_passes(session.domain, state, session.world)
    state.history = RewardHistory(RewardHistory.needed(recipe), state.history.rewards)
    state.prompt_values = PromptValues()
    is_measured_differently = _is_measured_differently(session, job, state, index)
    if job.tries_domain:
        # A domain of ours leaves a metric out where its reward is missing everywhere, which later evaluations may mend.
        check_metric(session.domain, recipe.train.metric, list(progress.latest))
    name = metric_name(recipe.train, progress.latest)
    # Early stopping measures gains from the start of the stage.
    progress.anchor, progress.evaluations_without_gain = progress.latest.get(name) if name else None, 0
    if is_measured_differently or index == first_sampling(job):
        # The best score is measured from this step on: earlier scores may be of another metric, and a warm-up may come
        # from another run, whose model is not in this folder.
        # The first process writes the folder, perhaps while another one looks.
        best_is_written = session.world.gather(progress.best_step == progress.step and session.folder.best.exists())[0]
        progress.best, progress.best_step = progress.latest.get(name) if name else None, progress.step
        if not best_is_written:
            keep_best_model(session, state)
    if index == first_sampling(job):
        progress.before, progress.before_step = _metrics_before(session, job, state, index, domains), progress.step
        if job.controls:
            record = state.record(session.world, 0)
            write_record(session.folder.checkpoints / START, record, session.world)
    if progress.step == progress.start_step:
        save(session, state)


def _is_measured_differently(session: Session, job: Job, state: TrainState, index: int) -> bool:
    """Evaluates at the start of a stage, unless the stage before has done so in the same way; returns whether scores
    from here on differ in kind from the earlier ones.
    """
    recipe, progress = job.recipes[index], state.progress
    is_evaluated, metrics_before = progress.latest_step == progress.step, dict(progress.latest)
    previous = job.recipes[index - 1] if index else recipe
    if not is_evaluated or recipe.measures != previous.measures:
        values, _ = evaluate_now(session, recipe, state)
        # Most settings of a domain do not change the numbers of its evaluations; equal numbers need no second row.
        if not is_evaluated or progress.latest != metrics_before:
            session.row(progress.step, recipe.name, values)
    goals = [(stage.train.metric, stage.train.metric_goal) for stage in (previous, recipe)]
    return goals[0] != goals[1] or (is_evaluated and progress.latest != metrics_before)


def _metrics_before(session: Session, job: Job, state: TrainState, index: int, domains: Domains) -> dict[str, float]:
    """Returns the metrics at the start of sampling, measured as those of the run's end will be."""
    progress, last = state.progress, job.recipes[-1]
    stage_metrics = dict(progress.latest)
    if last.measures == job.recipes[index].measures:
        return stage_metrics
    domain = domains.of(last)
    restore_reward_memory(domain, state)
    with autocast_of(last, session.device)(), state.averaged():
        evaluation = evaluate(domain, progress, session.streams, session.world)
    restore_reward_memory(session.domain, state)
    progress.latest = stage_metrics
    if evaluation.metrics != stage_metrics:
        session.say(
            f"stages {job.recipes[index].name} and {last.name} are evaluated in different ways; what the summary calls"
            f" before is measured as {last.name} is"
        )
    return dict(evaluation.metrics)


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
