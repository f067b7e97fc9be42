"""The loop: steps of one stage, each collecting a batch, updating on it, and saying what happened. It never knows a
domain.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, final

import torch

from groupwise.checkpoint import CheckpointStore, new_folder
from groupwise.checkpoint.atomic import storage_error
from groupwise.diagnosis import Watch
from groupwise.domain.base import Domain
from groupwise.domain.protocol import Evaluation
from groupwise.processes import peak_memory_bytes
from groupwise.reward import RewardEvent
from groupwise.runs import RunFolder
from groupwise.statistics import finish
from groupwise.streams import Streams
from groupwise.track import MetricsFile, Trackers
from groupwise.training.distributed import World
from groupwise.training.job import Recipe
from groupwise.training.run.callbacks import load_callbacks
from groupwise.training.run.evaluation import PREFIX, evaluate, metric_name, note_score, should_stop, signed_score
from groupwise.training.run.interrupt import Interrupt
from groupwise.training.run.pictures import with_files, write_pictures
from groupwise.training.run.rollout_records import rollout_records
from groupwise.training.run.run_folder import write_records
from groupwise.training.run.thinning import thin
from groupwise.training.step.collect import Collected, collect
from groupwise.training.step.state import TrainState
from groupwise.training.step.step import Step
from groupwise.training.step.update import Updates, update_policy


@final
@dataclass
class Session:
    """What a run works with, beside its state: the same for all of its stages.

    Args:
        domain: of the current stage.
        streams, world, device: randomness, processes, where.
        folder: the run folder.
        metrics: `metrics.jsonl`, on the first process.
        trackers: who follows.
        store: checkpoints; `None` saves none (a control).
        interrupt: whether somebody asked to end.
        watch: live diagnosis; a control has none.
        rollouts_every, num_rollouts: how often and how many members are written.
        keep_records: how many of the newest records stay; `None` keeps all.
        model_every: steps between loadable model folders.
        keep_best: whether the best model is kept as a folder.
        told: kinds of things that were said once.
    """

    domain: Domain
    streams: Streams
    world: World
    device: torch.device
    folder: RunFolder
    metrics: MetricsFile | None
    trackers: Trackers
    store: CheckpointStore | None
    interrupt: Interrupt
    watch: Watch | None = field(default_factory=Watch)
    rollouts_every: int = 0
    num_rollouts: int = 0
    keep_records: int | None = None
    model_every: int | None = None
    keep_best: bool = False
    told: set[object] = field(default_factory=set)

    def say(self, text: str) -> None:
        """One sentence for people.

        Args:
            text: the sentence.
        """
        self.trackers.note(text)

    def say_once(self, key: object, text: str) -> None:
        """One sentence for people, the first time something of its kind happens.

        Args:
            key: its kind.
            text: the sentence.
        """
        if key not in self.told:
            self.told.add(key)
            self.say(text)

    def row(self, step: int, stage: str, values: dict[str, float]) -> None:
        """One row of `metrics.jsonl`, and the trackers.

        Args:
            step: of the run.
            stage: its name.
            values: metric -> number.

        Raises:
            StorageError: the disk is full; the rows before stay whole.
        """
        if self.metrics is not None:
            try:
                self.metrics.append({"step": step, "stage": stage, **values})
            except OSError as error:
                kept = "" if self.store is None else self.store.kept()
                raise storage_error(self.metrics.path, error, kept) from error
        self.trackers.metrics(step, values)

    def diagnose(self, step: int, stage: str, values: dict[str, float]) -> None:
        """What the rules newly see in this row is said, notes apart; the worst that holds is shown.

        Args:
            step: of the run.
            stage: its name.
            values: metric -> number.
        """
        if self.watch is None:
            return
        for finding in self.watch.see({"step": step, "stage": stage, **values}):
            if finding.severity != "note":
                self.say(f"step {step}: {finding.rule}: {finding}")
        worst = self.watch.worst
        self.trackers.alarm("" if worst is None else worst.rule)


def run_stage(session: Session, recipe: Recipe, state: TrainState) -> bool:
    """Trains one stage from where `state` stands to its end; `state.progress.stage_ended` says why it ended early.

    Args:
        session: of the run.
        recipe: the stage.
        state: goes on from where it stands.

    Returns:
        false when somebody asked to end before that.

    Raises:
        StorageError: the disk is full; the message says what is safe.
        RewardError: a reward raised, or returned what is no reward.
    """
    progress = state.progress
    callbacks = load_callbacks(recipe.train.callbacks)
    autocast = autocast_of(recipe, session.device)
    while progress.stage_step < recipe.train.num_steps and not progress.stage_ended:
        # One process's answer for all: a signal may reach them in different steps.
        if any(session.world.gather(session.interrupt.asked)):
            return False
        start = perf_counter()
        with autocast():
            values, ended = _one_step(session, recipe, state)
        spent = session.world.gather(perf_counter() - start)[0]
        progress.step += 1
        progress.stage_step += 1
        progress.stage_seconds += spent
        values |= {"step_time": spent, **_memory(session.device)}
        evaluated = recipe.train.evaluate_every and progress.stage_step % recipe.train.evaluate_every == 0
        last = progress.stage_step >= recipe.train.num_steps
        best = False
        if evaluated or last:
            found, best = evaluate_now(session, recipe, state, autocast)
            values |= found
        session.row(progress.step, recipe.name, values)
        session.diagnose(progress.step, recipe.name, values)
        if any(bool(callback(progress.step, values)) for callback in callbacks):
            ended = "a callback ended it"
        if evaluated and should_stop(progress, recipe.train):
            ended = f"the score has not risen in {progress.evaluations_without_gain} evaluations"
        progress.stage_ended = session.world.gather(ended)[0]
        if not (last or progress.stage_ended):
            _save_when_due(session, state, best)
    return True


def evaluate_now(
    session: Session, recipe: Recipe, state: TrainState, autocast: Callable[[], Any] | None = None
) -> tuple[dict[str, float], bool]:
    """Evaluates, writes what the model did, and keeps the best model; returns the metrics as `eval/...` and whether it
    is the best so far.

    Args:
        session: of the run.
        recipe: the stage.
        state: of the run.
        autocast: the precision of the stage; unset takes it from the recipe.

    Returns:
        the metrics, and whether the score is the best so far.
    """
    progress = state.progress
    with (autocast or autocast_of(recipe, session.device))(), state.averaged():
        found = evaluate(session.domain, progress, session.streams, session.world)
    metrics = dict(found.metrics)
    name = metric_name(recipe.train, metrics)
    best = note_score(progress, recipe.train, metrics.get(name) if name else None)
    if session.world.first:
        _write_evaluation(session.folder, progress.step, found)
        # What a run began with and what its best model did are looked at long afterwards.
        _thin(session, progress.step, "evaluation", (progress.before_step, progress.best_step))
        session.trackers.members(progress.step, "evaluation", found.records, found.pictures)
    if best:
        keep_best_model(session, state)
    return {
        PREFIX + key: value for key, value in {**metrics, **_evaluation_events(session, progress.step, found)}.items()
    }, best


def keep_best_model(session: Session, state: TrainState) -> None:
    """Writes the model of this moment as `best/`, where that is asked for and anything was trained.

    Args:
        session: of the run.
        state: whose model it is.
    """
    if session.world.first and session.keep_best and state.progress.num_updates:
        _replace_model(session, state, session.folder.best)


def keep_model(session: Session, state: TrainState) -> None:
    """Writes the model of this moment as `models/step-N`, where models are kept at all.

    Args:
        session: of the run.
        state: whose model it is.
    """
    if session.model_every and session.world.first:
        _replace_model(session, state, session.folder.model_at(state.progress.step))


def save(session: Session, state: TrainState, *, best: bool = False) -> None:
    """Writes a checkpoint of this moment.

    Args:
        session: of the run; a control has no store, and saves nothing.
        state: what is saved.
        best: whether its score is the best so far.

    Raises:
        StorageError: the disk is full; the message says what is safe.
    """
    if session.store is None:
        return
    with state.progress.timed("checkpoint"):
        if session.metrics is not None:
            session.metrics.sync()
        record = state.record(session.world, session.metrics.length if session.metrics is not None else 0)
        if session.world.first:
            session.store.save(state.progress.step, record, score=state.progress.best if best else None, best=best)
        session.world.barrier()


def _one_step(session: Session, recipe: Recipe, state: TrainState) -> tuple[dict[str, float], str]:
    """One step without its evaluation; returns its metrics and, when it ends the stage, why."""
    domain, progress, world = session.domain, state.progress, session.world
    now = Step(domain, recipe, state, session.streams, world)
    before = dict(progress.seconds)
    weight = recipe.objective.policy_weight.at(state.objective.step)
    values: dict[str, float] = {"learning_rate": recipe.optimiser.rate(progress.stage_step), "lambda_pg": weight}
    if (supervised := recipe.objective.auxiliary.get("supervised")) is not None:
        values["lambda_sup"] = supervised.at(state.objective.step)
    collected: Collected | None = None
    if weight != 0:
        state.learner.eval()
        collected = collect(now)
        values |= finish(world.sum_statistics(collected.statistics)) | collected.numbers
        for remark in collected.remarks:
            session.say(f"step {progress.step + 1}: {remark}")
        if (rule := recipe.train.dynamic_group_size) is not None:
            progress.group_size = rule.next(now.group_size, values["groups/flat"])
        _say_events(session, state, collected)
    state.learner.train()
    with progress.timed("update" if recipe.samples else "warm_up"):
        updates = update_policy(now, collected)
    for remark in updates.remarks:
        session.say(f"step {progress.step + 1}: {remark}")
    if recipe.train.micro_batch_members == "auto":
        values["micro_batch_members"] = progress.micro_batch_members
    _count(session, recipe, state, updates)
    outcome = _follow(session, recipe, state) if updates.taken else ""
    values |= updates.mean()
    values |= {
        "updates/taken": updates.taken,
        "updates/skipped": updates.skipped,
        "updates/not_finite": updates.not_finite,
    }
    if state.reference.present:
        values |= {"reference/mixed": float(outcome == "mixed"), "reference/refused": float(outcome == "refused")}
        values["reference/steps_since_mixed"] = progress.step + 1 - progress.reference_mixed
        if state.reference.holds_weights:
            values["reference/distance"] = state.reference.distance()
    if collected is not None:
        values["epoch"] = progress.num_drawn / domain.num_prompts
        values |= {f"settings/{name}": value for name, value in collected.samples.settings.items()}
        _write_rollouts(session, recipe, state, collected, updates)
    parts = {name: total - before.get(name, 0.0) for name, total in progress.seconds.items()}
    values |= {f"seconds/{name}": spent for name, spent in parts.items() if spent > 0}
    out_of_time = (
        recipe.train.max_seconds is not None
        and progress.stage_seconds + sum(parts.values()) >= recipe.train.max_seconds
    )
    return values, f"its {recipe.train.max_seconds:g} seconds are over" if out_of_time else ""


def _say_events(session: Session, state: TrainState, collected: Collected) -> None:
    """What went wrong while rewards were computed, on any process, the first time of its kind; the counts are in the
    metrics of every step.
    """
    own = _counted(collected.table.events)
    parts = session.world.gather((own, len(collected.table)))
    num_members = sum(size for _, size in parts)
    for key in dict.fromkeys(key for found, _ in parts for key in found):
        reward, name = key
        told = [found[key] for found, _ in parts if key in found]
        text = f"reward {reward!r}: {name} for {sum(count for count, _, _ in told)} of {num_members} members" + (
            f", {told[0][1]}" if told[0][1] else ""
        )
        session.say_once(key, f"step {state.progress.step + 1}: {text}; later ones are only counted")


def _evaluation_events(session: Session, step: int, found: Evaluation) -> dict[str, float]:
    """Says what went wrong while samples of an evaluation were scored, the first time of its kind, and returns the
    counts, as `rewards/NAME/num_EVENT`.
    """
    counts: dict[str, float] = {}
    for (reward, name), (count, detail, scored) in _counted(found.events).items():
        counts[f"rewards/{reward}/num_{name}"] = float(count)
        text = f"step {step}, evaluation: reward {reward!r}: {name} for {count} samples" + (
            f", {detail}" if detail else ""
        )
        left_out = "" if scored else "; they are left out of its mean"
        session.say_once(("evaluation", reward, name), f"{text}{left_out}; later ones are only counted")
    return counts


def _counted(events: Sequence[RewardEvent]) -> dict[tuple[str, str], tuple[int, str, bool]]:
    """(reward, event) -> how many members, what a reader wants to see once, and whether they have a value
    all the same.
    """
    found: dict[tuple[str, str], tuple[int, str, bool]] = {}
    for event in events:
        count, detail, scored = found.get((event.reward, event.name), (0, event.detail, event.scored))
        found[event.reward, event.name] = (count + event.count, detail, scored)
    return found


def _count(session: Session, recipe: Recipe, state: TrainState, updates: Updates) -> None:
    progress = state.progress
    progress.num_updates += updates.taken
    progress.num_skipped += updates.skipped
    progress.num_not_finite += updates.not_finite
    if updates.not_finite:
        session.say(
            f"step {progress.step + 1}: {updates.not_finite} of {len(updates.metrics)} updates had a gradient that was"
            " not finite and were left out"
        )
    progress.skipped_in_a_row = 0 if updates.taken else progress.skipped_in_a_row + updates.skipped
    if (
        progress.skipped_in_a_row >= recipe.train.patience
        and progress.skipped_in_a_row - updates.skipped < recipe.train.patience
    ):
        session.say(
            f"step {progress.step + 1}: {progress.skipped_in_a_row} updates in a row had nothing to learn from (every"
            " group's rewards were equal and no other term is active); try easier or harder prompts, a reward with"
            " more levels, or a higher temperature"
        )


def _follow(session: Session, recipe: Recipe, state: TrainState) -> str:
    progress = state.progress
    progress.reference_step += 1
    score = None if progress.score is None else signed_score(recipe.train, progress.score)
    outcome = state.reference.observe(progress.reference_step, score)
    if outcome == "mixed":
        progress.reference_mixed = progress.step + 1
    if outcome == "refused":
        session.say(
            f"step {progress.step + 1}: the reference was not mixed with the policy, whose score in the evaluations has"
            " fallen below it"
        )
    return outcome


def _write_evaluation(folder: RunFolder, step: int, found: Evaluation) -> None:
    path = folder.evaluation_at(step)
    write_pictures(path.with_suffix(""), found.pictures)
    if found.records:
        write_records(path, with_files(found.records, path.with_suffix("") / "members", folder.path))


def _write_rollouts(
    session: Session, recipe: Recipe, state: TrainState, collected: Collected, updates: Updates
) -> None:
    step = state.progress.step + 1
    if not session.rollouts_every or (step % session.rollouts_every and state.progress.stage_step):
        return
    # Members of all processes, in the order of their groups: those of the first alone could not be told from the whole
    # step.
    own = (
        rollout_records(session.domain, recipe.objective, collected, updates, session.num_rollouts)
        if len(collected.samples)
        else []
    )
    everyone = [record for records in session.world.gather(own) for record in records]
    records = sorted(everyone, key=lambda record: record["group"])[: session.num_rollouts]
    if session.world.first and records:
        path = session.folder.rollouts_at(step)
        session.trackers.members(step, "rollouts", records, {})
        write_records(path, with_files(records, path.with_suffix("") / "members", session.folder.path))
        _thin(session, step, "step")


def _thin(session: Session, step: int, kind: Literal["step", "evaluation"], always: Collection[int] = ()) -> None:
    if session.keep_records is not None and thin(session.folder.rollouts, kind, session.keep_records, always):
        text = (
            f"keeps the newest {session.keep_records} files of rollouts and of evaluations, and of those before as many"
            " evenly over the run"
        )
        session.say_once("thinned", f"step {step}: {session.folder.rollouts} {text} (track.keep_records)")


def _save_when_due(session: Session, state: TrainState, best: bool) -> None:
    step = state.progress.step
    if session.model_every and step % session.model_every == 0:
        keep_model(session, state)
    if session.store is not None and (best or step % session.store.config.every == 0):
        save(session, state, best=best)


def _replace_model(session: Session, state: TrainState, path: Path) -> None:
    with new_folder(path, replace=True) as partial, state.averaged():
        session.domain.save(partial)


def autocast_of(recipe: Recipe, device: torch.device) -> Callable[[], Any]:
    """The precision in which a stage samples, trains and evaluates: makes a context.

    Args:
        recipe: the stage.
        device: where it computes.
    """
    if recipe.train.autocast == "none":
        return contextlib.nullcontext
    # Its cache of cast weights outlives an optimiser step and an exchange of weights with the reference.
    return lambda: torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)


def _memory(device: torch.device) -> dict[str, float]:
    if device.type == "cuda":
        return {"memory/peak_mib": torch.cuda.max_memory_allocated(device) / 2**20}
    peak = peak_memory_bytes()
    return {} if peak is None else {"memory/peak_mib": peak / 2**20}
