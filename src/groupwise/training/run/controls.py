"""Controls: stages that train in another way from the same start for the same seconds, so that a run's gain can be
compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from groupwise.checkpoint import load_tree, remove_folder
from groupwise.config import read_json
from groupwise.objective import ObjectiveState
from groupwise.reference.policy import ReferencePolicy
from groupwise.track import MetricsFile, Trackers
from groupwise.track.decimals import same_decimals
from groupwise.training.job import Domains, Job, Recipe
from groupwise.training.progress import Progress
from groupwise.training.run.evaluation import metric_name
from groupwise.training.run.loop import Session, evaluate_now, run_stage
from groupwise.training.run.run_folder import write_json
from groupwise.training.run.stages import START, first_sampling, stage_reference
from groupwise.training.run.summary import summarise
from groupwise.training.step.prompt_values import PromptValues
from groupwise.training.step.reward_history import RewardHistory
from groupwise.training.step.state import TrainState


def run_controls(session: Session, job: Job, state: TrainState, domains: Domains) -> tuple[float | None, bool]:
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
    for name, recipes in job.controls.items():
        folder = session.folder.control(name)
        if not folder.has_ended:
            if not start.is_dir():
                session.say(f"control {name} is left out: the state it starts from is gone")
                scores.append(None)
                continue
            session.say(f"control {name}: the same start, the same {state.progress.sampled_seconds:.0f} s")
            control = _Control(name, recipes, load_tree(start), state.progress.sampled_seconds)
            if not _train_control(session, job, domains, control):
                return None, False
        summary = read_json(folder.summary)
        before, after = same_decimals([summary["before"], summary["after"]])
        session.say(f"control {name}: {evaluated_on.of(summary['metric'])} {before} before, {after} after")
        scores.append(summary["after"])
    return (scores[0] if scores else None), True


@final
@dataclass(frozen=True)
class _Control:
    """One control and the start that it shares with the run.

    Args:
        name: the control's name in the configuration.
        recipes: the stages of the control.
        start: the record of the run's state at its first stage that samples.
        seconds: the time of the control's training, shared equally by its stages.
    """

    name: str
    recipes: Sequence[Recipe]
    start: Mapping[str, Any]
    seconds: float


def _train_control(session: Session, job: Job, domains: Domains, control: _Control) -> bool:
    """Trains one control and writes its summary; returns false when an interrupt ended it early."""
    folder, is_first_process = session.folder.control(control.name), session.world.first
    if is_first_process:
        if folder.path.exists():
            remove_folder(folder.path)
        folder.path.mkdir(parents=True)
    session.world.barrier()
    state = TrainState(Progress(), ObjectiveState(), domains.base.learner)
    # The record holds the reference of the run's stage; a control begins with the reference of its first stage.
    state.restore({**control.start, "reference": state.reference.state(), "generators": []}, session.world)
    state.progress.seconds = {}
    previous = job.recipes[first_sampling(job)]
    control_session = replace(
        session,
        folder=folder,
        store=None,
        metrics=MetricsFile(folder.metrics) if is_first_process else None,
        trackers=_PrefixedNotes(session.trackers, f"control {control.name}: "),
        watch=None,  # faults of a control are not faults of the run; `groupwise doctor RUN/controls/NAME` shows them
        keep_best=False,
        model_every=None,
    )
    for index, recipe in enumerate(control.recipes):
        # A control ends by its time, not by its steps: its steps may be cheaper, and then it takes more of them.
        timed = replace(
            recipe,
            train=recipe.train.model_copy(
                update={"max_seconds": max(control.seconds / len(control.recipes), 1e-3), "num_steps": 10**9}
            ),
        )
        control_session.domain = domains.of(timed)
        state.learner.checkpoint_activations(timed.train.gradient_checkpointing)
        state.reference = ReferencePolicy(stage_reference(timed), state.learner)
        state.begin_average(timed.train.weight_average)
        state.history = RewardHistory(RewardHistory.needed(timed), state.history.rewards)
        state.prompt_values = PromptValues()
        state.objective = timed.objective.adopt(state.objective, previous.objective)
        progress = state.progress
        progress.stage, progress.stage_step, progress.stage_seconds, progress.stage_ended = index, 0, 0.0, ""
        progress.group_size = 0
        if not run_stage(control_session, timed, state):
            return False
        previous = timed
    last = control.recipes[-1]
    if state.progress.latest_step != state.progress.step:
        values, _ = evaluate_now(control_session, last, state)
        control_session.row(state.progress.step, last.name, values)
    if is_first_process:
        write_json(
            folder.summary,
            summarise(state.progress, metric_name(last.train, state.progress.latest), None, job.seed),
        )
    session.world.barrier()
    return True


class _PrefixedNotes(Trackers):
    """Trackers of a control: its sentences go to the run's trackers, with a prefix. Its numbers go to its
    `metrics.jsonl`.
    """

    def __init__(self, run_trackers: Trackers, prefix: str) -> None:
        super().__init__([])
        self._run_trackers, self._prefix = run_trackers, prefix

    def note(self, text: str) -> None:
        self._run_trackers.note(self._prefix + text)
