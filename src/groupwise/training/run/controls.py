"""Controls: other ways to spend the same seconds from the same start, so that a gain is compared with something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from groupwise.checkpoint import load_tree, remove_folder
from groupwise.config import read_json
from groupwise.objective import ObjectiveState
from groupwise.reference.policy import ReferencePolicy
from groupwise.runs import RunFolder
from groupwise.track import MetricsFile, Trackers
from groupwise.track.decimals import same_decimals
from groupwise.training.job import Domains, Job, Recipe
from groupwise.training.progress import Progress
from groupwise.training.run.evaluation import metric_name
from groupwise.training.run.loop import Session, evaluate_now, run_stage
from groupwise.training.run.run_folder import write_json
from groupwise.training.run.stages import START, first_sampling, stage_reference
from groupwise.training.run.summary import summarise
from groupwise.training.step.reward_history import RewardHistory
from groupwise.training.step.state import TrainState


def run_controls(session: Session, job: Job, state: TrainState, domains: Domains) -> tuple[float | None, bool]:
    """Trains every control that is not done yet, in `RUN/controls/NAME`.

    The module holds a control's weights afterwards: the run's own model must be saved before.

    Args:
        session: of the run.
        job: of the run.
        state: of the run at its end.
        domains: of the run.

    Returns:
        the first one's score, and false when somebody asked to end before.
    """
    start = session.folder.checkpoints / START
    evaluated_on = domains.evaluated_on(job.recipes)
    scores: list[float | None] = []
    for name, recipes in job.controls.items():
        folder = session.folder.control(name)
        if not folder.has_ended:
            if not start.is_dir():
                session.say(f"control {name} is left out: the state it starts from is gone")
                scores.append(None)
                continue
            session.say(f"control {name}: the same start, the same {state.progress.sampled_seconds:.0f} s")
            if not _control(
                session, job, name, folder, recipes, load_tree(start), state.progress.sampled_seconds, domains
            ):
                return None, False
        summary = read_json(folder.summary)
        before, after = same_decimals([summary["before"], summary["after"]])
        session.say(f"control {name}: {evaluated_on.of(summary['metric'])} {before} before, {after} after")
        scores.append(summary["after"])
    return (scores[0] if scores else None), True


def _control(
    session: Session,
    job: Job,
    name: str,
    folder: RunFolder,
    recipes: Sequence[Recipe],
    record: dict[str, Any],
    seconds: float,
    domains: Domains,
) -> bool:
    first = session.world.first
    if first:
        if folder.path.exists():
            remove_folder(folder.path)
        folder.path.mkdir(parents=True)
    session.world.barrier()
    state = TrainState(Progress(), ObjectiveState(), domains.base.learner)
    # The start holds the reference of the stage it belongs to; a control begins with its own.
    state.restore({**record, "reference": state.reference.state(), "generators": []}, session.world)
    state.progress.seconds = {}
    previous = job.recipes[first_sampling(job)]
    own = replace(
        session,
        folder=folder,
        store=None,
        metrics=MetricsFile(folder.metrics) if first else None,
        trackers=_Through(session.trackers, f"control {name}: "),
        watch=None,  # a control's faults are no faults of the run; `groupwise doctor RUN/controls/NAME` names them
        keep_best=False,
        model_every=None,
    )
    for index, recipe in enumerate(recipes):
        # Time alone ends a control: it may take cheaper steps, and more of them.
        timed = replace(
            recipe,
            train=recipe.train.model_copy(
                update={"max_seconds": max(seconds / len(recipes), 1e-3), "num_steps": 10**9}
            ),
        )
        own.domain = domains.of(timed)
        state.learner.checkpoint_activations(timed.train.gradient_checkpointing)
        state.reference = ReferencePolicy(stage_reference(timed), state.learner)
        state.begin_average(timed.train.weight_average)
        state.history = RewardHistory(RewardHistory.needed(timed), state.history.rewards)
        state.objective = timed.objective.adopt(state.objective, previous.objective)
        progress = state.progress
        progress.stage, progress.stage_step, progress.stage_seconds, progress.stage_ended = index, 0, 0.0, ""
        progress.group_size = 0
        if not run_stage(own, timed, state):
            return False
        previous = timed
    if state.progress.latest_step != state.progress.step:
        values, _ = evaluate_now(own, recipes[-1], state)
        own.row(state.progress.step, recipes[-1].name, values)
    if first:
        write_json(
            folder.summary,
            summarise(state.progress, metric_name(recipes[-1].train, state.progress.latest), None, job.seed),
        )
    session.world.barrier()
    return True


class _Through(Trackers):
    """A control speaks in sentences, through the run's trackers; its numbers go to its own `metrics.jsonl`."""

    def __init__(self, through: Trackers, prefix: str) -> None:
        super().__init__([])
        self._through, self._prefix = through, prefix

    def note(self, text: str) -> None:
        self._through.note(self._prefix + text)
