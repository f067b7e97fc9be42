"""The loop: steps of one stage, each of which collects a batch, updates on it, and reports what happened. It knows no
domain.
"""

import contextlib
import inspect
import math
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from types import FrameType
from typing import Any, Final, Literal, Protocol

import torch

from groupwise.checkpoint import CheckpointStore, new_folder
from groupwise.checkpoint.atomic import storage_error
from groupwise.config import ConfigError, ImportPath, difference, user_callable, why_failed
from groupwise.domain.base import Domain
from groupwise.domain.protocol import Evaluation
from groupwise.processes import peak_memory_bytes
from groupwise.reward import RewardEvent
from groupwise.runs import RunFolder
from groupwise.streams import Streams
from groupwise.track import MetricsFile, TrackConfig, Trackers
from groupwise.training.distributed import World
from groupwise.training.job import Job, Recipe
from groupwise.training.run import rollout_records, run_folder
from groupwise.training.run.evaluation import PREFIX, evaluate, metric_name, note_score, score_now
from groupwise.training.step.rollouts import Collected
from groupwise.training.step.state import Progress, Step, TrainState, ready_rewards, rewards_of
from groupwise.training.step.step import Updates, train_step

# The clock by which a stage and its controls are given equal time.

_SCHEDULER: Final = Path("/proc/thread-self/schedstat")


def undelayed_seconds() -> float:
    """Reads a clock of wall time that stands still while the calling thread waits for a processor which others use.

    On a busy machine a run and its control then get equal amounts of work from equal seconds. Time in which the thread
    waits for a GPU, a server or a file counts as on every clock. Where the system does not say how long a thread
    waited (anywhere but on Linux), this is wall time.

    Returns:
        seconds since a moment that does not change while the thread lives; only differences mean something.

    Example:
        >>> start = undelayed_seconds()
        >>> undelayed_seconds() >= start
        True
    """
    # The delay, the seconds that the thread has waited in a processor's queue, is read first: a wait between the two
    # readings then lengthens the time instead of turning it back.
    try:
        delay = int(_SCHEDULER.read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        delay = 0.0
    return perf_counter() - delay


# A user's functions, called after every step.

Callback = Callable[[int, Mapping[str, float]], object]


def load_callbacks(paths: Sequence[ImportPath]) -> list[Callback]:
    """Imports functions by import path, `package.module:function`; a module may be in the working directory.

    Args:
        paths: import paths, `package.module:function`.

    Returns:
        the functions, in order; an error that one raises is raised again with the function's path in the message.

    Raises:
        ConfigError: a module or function does not exist, or the object cannot be called with a step and metrics.

    Example:
        >>> [function(1, {}) for function in load_callbacks([ImportPath("builtins:max")])]  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: train.callbacks: "builtins:max" raised TypeError: ...; mend it, and go on with `groupwise resume`
    """
    write = "a function f(step, metrics)"
    functions = [user_callable(path, "train.callbacks", write=write) for path in paths]
    for path, function in zip(paths, functions, strict=True):
        _check_signature(path, function)
    return [_with_path_in_errors(path, function) for path, function in zip(paths, functions, strict=True)]


def _check_signature(path: str, function: Callback) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:
        # Some functions of C have no signature; their call tells.
        return
    try:
        signature.bind(0, {})
    except TypeError as error:
        raise ConfigError(
            f'train.callbacks: "{path}" is called as f(step, metrics), and its signature is {signature}: {error}'
        ) from error


def _with_path_in_errors(path: str, function: Callback) -> Callback:
    def call(step: int, metrics: Mapping[str, float]) -> object:
        try:
            return function(step, metrics)
        # A user's function may fail in any way.
        except Exception as error:
            raise ValueError(
                f'train.callbacks: "{path}" raised {why_failed(error)}; mend it, and go on with `groupwise resume`'
            ) from error

    return call


# Ctrl-C, a scheduler's SIGTERM, a terminal that closes (SIGHUP): the run finishes the step, saves and ends; a second
# Ctrl-C ends it at once.


@dataclass
class Interrupt:
    """A request to end the run: the number of its signal, 0 before one has come."""

    signal: int = 0


@contextmanager
def listening(report: Callable[[str], None]) -> Iterator[Interrupt]:
    """Takes SIGINT, SIGTERM and SIGHUP as a request to end the run within the block; outside the main thread it changes
    nothing. `nohup` goes on ignoring SIGHUP.

    Args:
        report: receives one sentence when the request arrives, in a separate thread: the signal may arrive while the
            main thread writes and waits for a reader, where Python allows no second write to the same file.

    Yields:
        the request, which is set when a signal comes.

    Raises:
        KeyboardInterrupt: SIGINT came after the first request; a second SIGTERM changes nothing.

    Example:
        >>> sentences = []
        >>> with listening(sentences.append) as interrupt:
        ...     signal.raise_signal(signal.SIGTERM)
        >>> interrupt.signal == signal.SIGTERM, sentences
        (True, ['ending after this step, with a checkpoint; Ctrl-C again ends at once'])
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    then = "Ctrl-C again ends at once"
    if "TORCHELASTIC_RUN_ID" in os.environ:  # A second Ctrl-C reaches torchrun alone.
        then = "torchrun kills what is still there after its --shutdown-timeout, 30 s where it has none"
    # A second signal may interrupt `put`; the `put` of a SimpleQueue is reentrant.
    sentences: SimpleQueue[str | None] = SimpleQueue()

    def relay() -> None:
        for text in iter(sentences.get, None):
            report(text)

    def handle(number: int, frame: FrameType | None) -> None:
        if interrupt.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        if interrupt.signal:
            return
        interrupt.signal = number
        sentences.put(f"ending after this step, with a checkpoint; {then}")

    reporter = threading.Thread(target=relay, name="groupwise-interrupt", daemon=True)
    reporter.start()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    previous_handlers = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield interrupt
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
        sentences.put(None)
        reporter.join()


class Watch(Protocol):
    """Judges a run while it trains: `see` takes a row of `metrics.jsonl` and returns new findings, each with a `rule`
    and a `severity`; `headline.cause.rule` is the worst that still holds.
    """

    @property
    def headline(self) -> Any: ...

    def see(self, row: Mapping[str, Any]) -> Sequence[Any]: ...


OUT_OF_TIME = "the minutes of the run are over"
"""The reason that is given when the time of the whole run is over, which ends the stage and the run."""


@dataclass
class Session:
    """Everything that a run works with except its state; only `domain` changes between stages.

    Args:
        domain: the domain of the current stage.
        streams: the random streams of the run.
        world: the place of this process among its peers.
        device: the device of this process.
        folder: the run folder.
        metrics: `metrics.jsonl`, on the first process; `None` on the others.
        trackers: the receivers of metrics and sentences.
        store: the checkpoints and models; `None` for a control, which saves none.
        interrupt: a person's or a scheduler's request to end the run.
        watch: live diagnosis, which `groupwise_look` brings; `None` for a control.
        track: how often rollouts are written, and how many records stay.
        announced: the keys of sentences that were reported once and are not repeated.
        alarm: the rule that the trackers show.
        ends_at: the reading of `perf_counter` by which the run is to have ended, its last evaluation included.
        evaluation_seconds: the time that the newest evaluation took.
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
    watch: Watch | None = None
    track: TrackConfig = field(default_factory=TrackConfig)
    announced: set[object] = field(default_factory=set)
    alarm: str = ""
    ends_at: float = math.inf
    evaluation_seconds: float = 0.0

    def note(self, text: str) -> None:
        """Shows one sentence to the people who follow the run."""
        self.trackers.note(text)

    def note_once(self, key: object, text: str) -> None:
        """Shows a sentence the first time that its key comes.

        Args:
            key: the kind of event that the sentence reports.
        """
        if key not in self.announced:
            self.announced.add(key)
            self.note(text)

    def row(self, step: int, stage: str, values: dict[str, float]) -> None:
        """Writes one row of `metrics.jsonl` and passes it to the trackers.

        Args:
            step: the step of the run.
            stage: the name of the stage.
            values: metric -> number.

        Raises:
            StorageError: the disk is full; the rows before stay whole.
        """
        if self.metrics is not None:
            try:
                self.metrics.append({"step": step, "stage": stage, **values})
            except OSError as error:
                saved = "" if self.store is None else self.store.safety_note()
                raise storage_error(self.metrics.path, error, saved) from error
        self.trackers.metrics(step, values)

    def diagnose(self, step: int, stage: str, values: dict[str, float]) -> None:
        """Reports what the rules of diagnosis newly see in this row, except notes; shows the worst rule that still
        holds.

        Args:
            step: the step of the run.
            stage: the name of the stage.
            values: metric -> number.
        """
        if self.watch is None:
            return
        for finding in self.watch.see({"step": step, "stage": stage, **values}):
            if finding.severity != "note":
                self.note(f"step {step}: {finding.rule}: {finding}")
        headline = self.watch.headline
        alarm = "" if headline is None else headline.cause.rule
        if alarm != self.alarm:
            self.alarm = alarm
            self.trackers.alarm(alarm)


def run_stage(session: Session, recipe: Recipe, state: TrainState) -> bool:
    """Trains one stage from its current step to its end; `state.progress.stage_ended` gives the reason of an early end.

    Args:
        state: the state of the run, which the stage changes.

    Returns:
        false when an interrupt ended the stage early.

    Raises:
        StorageError: the disk is full; the message names the newest checkpoint.
        RewardError: a reward function raised, or returned a value that is not a reward.
    """
    progress = state.progress
    callbacks = load_callbacks(recipe.train.callbacks)
    autocast = autocast_of(recipe, session.device)
    measure = partial(score_now, session.domain, recipe.train, progress, session.streams, session.world)
    step = Step(session.domain, recipe, state, session.streams, session.world, measure)
    collected, updates = None, None
    while progress.stage_step < recipe.train.num_steps and not progress.stage_ended:
        # A signal may reach the processes in different steps, so that a request to one of them counts for all.
        if any(session.world.gather(session.interrupt.signal)):
            _keep_rollouts(session, step, collected, updates, ends=True)
            return False
        start, undelayed_start, seconds_before = perf_counter(), undelayed_seconds(), dict(progress.seconds)
        with autocast:
            values, collected, updates = train_step(step)
            _report_step(session, step, collected, updates)
        for name, total in progress.seconds.items():
            if (seconds := total - seconds_before.get(name, 0.0)) > 0:
                values[f"seconds/{name}"] = seconds
        spent, undelayed = session.world.gather((perf_counter() - start, undelayed_seconds() - undelayed_start))[0]
        progress.step += 1
        progress.stage_step += 1
        progress.stage_seconds += undelayed
        limit = recipe.train.max_seconds
        ended = f"its {limit:g} seconds are over" if limit is not None and progress.stage_seconds >= limit else ""
        # Another step and the last evaluation have to fit.
        if perf_counter() + spent + session.evaluation_seconds > session.ends_at:
            ended = OUT_OF_TIME
        values["step_time"] = spent
        is_cuda = session.device.type == "cuda"
        peak = torch.cuda.max_memory_allocated(session.device) if is_cuda else peak_memory_bytes()
        if peak is not None:
            values["memory/peak_mib"] = peak / 2**20
        is_evaluation_due = recipe.train.evaluate_every and progress.stage_step % recipe.train.evaluate_every == 0
        is_last_step = progress.stage_step >= recipe.train.num_steps
        is_best = False
        if is_evaluation_due or is_last_step:
            evaluated_values, is_best = evaluate_now(session, recipe, state)
            values |= evaluated_values
        session.row(progress.step, recipe.name, values)
        session.diagnose(progress.step, recipe.name, values)
        if any(bool(callback(progress.step, values)) for callback in callbacks):
            ended = "a callback ended it"
        early = recipe.train.early_stopping
        if is_evaluation_due and early is not None and progress.evaluations_without_gain >= early.patience:
            ended = f"the score has not risen in {progress.evaluations_without_gain} evaluations"
        progress.stage_ended = session.world.gather(ended)[0]
        if is_last_step or progress.stage_ended:
            _keep_rollouts(session, step, collected, updates, ends=True)
        else:
            store = session.store
            if store is not None and store.config.model_every and progress.step % store.config.model_every == 0:
                keep_model(session, state)
            if store is not None and (is_best or progress.step % store.config.every == 0):
                save(session, state, best=is_best)
    return True


def evaluate_now(session: Session, recipe: Recipe, state: TrainState) -> tuple[dict[str, float], bool]:
    """Evaluates, writes the records of the evaluation, and saves the best model.

    Args:
        state: the state of the run.

    Returns:
        the metrics as `eval/...`, and whether the score is the best so far.
    """
    progress, start = state.progress, perf_counter()
    if (rewards := rewards_of(session.domain)) is not None:
        ready_rewards(rewards, state, recipe, session.domain.num_prompts)
    with autocast_of(recipe, session.device), state.averaged():
        evaluation = evaluate(session.domain, progress, session.streams, session.world)
    metrics = dict(evaluation.metrics)
    name = metric_name(recipe.train, metrics)
    is_best = note_score(progress, recipe.train, metrics.get(name) if name else None)
    if session.world.first:
        _write_evaluation(session.folder, progress.step, evaluation)
        # People look at the evaluations of the start and of the best model long after the run.
        _remove_old_records(session, progress.step, "evaluation", (progress.before_step, progress.best_step))
        session.trackers.members(progress.step, "evaluation", evaluation.records, evaluation.pictures)
    if is_best:
        keep_best_model(session, state)
    session.evaluation_seconds = perf_counter() - start
    events = _note_events(session, evaluation.events, f"step {progress.step}, evaluation", "samples")
    return {PREFIX + key: value for key, value in {**metrics, **events}.items()}, is_best


def keep_best_model(session: Session, state: TrainState) -> None:
    """Writes the present model as `best/`, where the configuration asks for it and a weight was trained.

    Args:
        state: the state with the model.
    """
    if session.store is not None and session.store.config.keep_best and state.progress.num_updates:
        write_model(session, session.domain, state, session.folder.best)


def keep_model(session: Session, state: TrainState) -> None:
    """Writes the present model as `models/step-N`, where `checkpoint.model_every` is set.

    Args:
        state: the state with the model.
    """
    if session.store is not None and session.store.config.model_every:
        write_model(session, session.domain, state, session.folder.model_at(state.progress.step))


def save(session: Session, state: TrainState, *, best: bool = False) -> None:
    """Writes a checkpoint of the present state.

    Args:
        session: the means of the run; a control has no store, and nothing is saved.
        state: the state of the run.
        best: whether the newest score is the best so far.

    Raises:
        StorageError: the disk is full; the message names the newest checkpoint.
    """
    if session.store is None:
        return
    with state.progress.timed("checkpoint"):
        if session.metrics is not None:
            session.metrics.sync()
        record = state.record(session.world, session.metrics.length if session.metrics is not None else 0)
        score = state.progress.best if best else None
        session.store.save(state.progress.step, record, score=score, best=best, peers=session.world)
        session.world.barrier()


def _report_step(session: Session, step: Step, collected: Collected | None, updates: Updates) -> None:
    """Reports the events of a step and writes its rollouts. Of events in the computation of rewards, the first of each
    kind is reported, from any process.
    """
    number = step.state.progress.step + 1
    for remark in [*(collected.remarks if collected is not None else []), *updates.remarks]:
        session.note(f"step {number}: {remark}")
    if collected is None:
        return
    # The table has only the members that are trained on, so the events are collected from the samples of all rounds.
    events = [event for share in session.world.gather(collected.samples.rewards.events) for event in share]
    num_members = round(collected.numbers["num_prompts_drawn"] * collected.numbers["group_size"])
    _note_events(session, events, f"step {number}", f"of {num_members} members")
    _keep_rollouts(session, step, collected, updates)


def _keep_rollouts(
    session: Session, step: Step, collected: Collected | None, updates: Updates | None, *, ends: bool = False
) -> None:
    """Writes the rollouts of a step where it is the first of a stage or one of every `rollouts_every`; with `ends`
    those of the last step, which has been counted, where they were not written then.
    """
    number = step.state.progress.step + (not ends)
    if collected is None or updates is None or not session.track.rollouts_every:
        return
    if _keeps_rollouts(session, step.state.progress, number) != ends:
        _write_rollouts(session, step, number, collected, updates)
        if not ends:
            _remove_old_records(session, number, "step")


def _keeps_rollouts(session: Session, progress: Progress, number: int) -> bool:
    """Returns whether a step is one whose rollouts every run keeps, also one that is not stopped there."""
    every, first = session.track.rollouts_every, progress.step - progress.stage_step + 1
    return every > 0 and (number % every == 0 or number == first)


def forget_last_rollouts(session: Session, progress: Progress) -> None:
    """Removes the rollouts of the step at which a run was stopped, so that it ends with the files of an uncut one."""
    if session.world.first and not _keeps_rollouts(session, progress, progress.step):
        run_folder.forget(session.folder.rollouts_at(progress.step))


def _note_events(session: Session, events: Sequence[RewardEvent], place: str, whom: str) -> dict[str, float]:
    """Reports the first event of each kind in the computation of rewards, and returns how many members each kind
    befell, as `rewards/NAME/num_EVENT`.
    """
    counts: dict[tuple[str, str], int] = Counter()
    first: dict[tuple[str, str], RewardEvent] = {}
    for event in events:
        counts[event.reward, event.name] += event.count
        first.setdefault((event.reward, event.name), event)
    for (reward, name), event in first.items():
        detail = f", {event.detail}" if event.detail else ""
        left_out = "; they are left out of its mean" if whom == "samples" and not event.scored else ""
        text = f"{place}: reward {reward!r}: {name} for {counts[reward, name]} {whom}{detail}{left_out}"
        session.note_once((whom == "samples", reward, name), f"{text}; later ones are only counted")
    return {f"rewards/{reward}/num_{name}": float(count) for (reward, name), count in counts.items()}


def _write_evaluation(folder: RunFolder, step: int, evaluation: Evaluation) -> None:
    path = folder.evaluation_at(step)
    rollout_records.write_pictures(path.with_suffix(""), evaluation.pictures)
    if evaluation.records:
        run_folder.write_records(
            path, rollout_records.with_files(evaluation.records, path.with_suffix("") / "members", folder.path)
        )


def _write_rollouts(session: Session, step: Step, number: int, collected: Collected, updates: Updates) -> None:
    most = session.track.num_rollouts
    # The file has members of all processes in the order of their groups: a file of the first process's members would
    # look like a file of the whole step.
    local_records = (
        rollout_records.rollout_records(session.domain, step.objective, collected, updates, most)
        if len(collected.samples)
        else []
    )
    everyone = [record for records in session.world.gather(local_records) for record in records]
    records = sorted(everyone, key=lambda record: record["group"])[:most]
    if session.world.first and records:
        path = session.folder.rollouts_at(number)
        session.trackers.members(number, "rollouts", records, {})
        run_folder.write_records(
            path, rollout_records.with_files(records, path.with_suffix("") / "members", session.folder.path)
        )


def _remove_old_records(
    session: Session, step: int, kind: Literal["step", "evaluation"], always: Collection[int] = ()
) -> None:
    newest = session.track.keep_records
    if newest is not None and run_folder.remove_old_records(session.folder.rollouts, kind, newest, always):
        text = (
            f"keeps the newest {newest} files of rollouts and of evaluations, and of those before as many"
            " evenly over the run"
        )
        session.note_once("thinned", f"step {step}: {session.folder.rollouts} {text} (track.keep_records)")


def write_model(session: Session, domain: Domain, state: TrainState, path: Path) -> None:
    """Writes the present model (its averaged weights, where an average is kept) as a loadable folder, on the first
    process; every process must call it.

    Args:
        domain: a domain of the run, which saves the model.
        path: path of the folder; one that exists is replaced.

    Raises:
        ConfigError: the domain wrote nothing.
    """
    with state.averaged(), state.learner.gathered(on_cpu=True, here=session.world.first):
        if session.world.first:
            with new_folder(path, replace=True) as partial:
                domain.save(partial)
                if not any(partial.iterdir()):
                    raise ConfigError(
                        f"{type(domain).__name__}.save wrote nothing into the folder that it was given: the trained"
                        " weights are in the checkpoints alone; write them there"
                    )


def autocast_of(recipe: Recipe, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Returns the context of the precision in which a stage samples, trains and evaluates."""
    if recipe.train.autocast == "none":
        return contextlib.nullcontext()
    # Autocast's cache of cast weights would outlive an optimiser step and an exchange of weights with the reference.
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)


# Several processes of a run have to agree before it begins: on its folder and settings, weights and prompts.

_PROMPTS_COMPARED = 16
"""The number of training prompts, evenly spaced, whose keys are compared between processes."""

_OF_ONE_PROCESS = frozenset({"name", "description", "track", "objects"})
"""Settings that may differ between processes: some are used by the first process only, and records of objects have
hashes that another process need not reproduce. Weights and prompts are compared separately.
"""

_OF_A_MACHINE = ("train.callbacks", "train.num_threads", "train.memory_limit_gib")
"""Keys, also of a stage, that may differ as well: the first process decides for all what callbacks return, and machines
have other sizes.
"""


def agreed_folder(job: Job, folder: RunFolder, world: World) -> RunFolder:
    """Returns the run folder of the first process, under its name on this process. A folder named by the time has
    another name on a process that started a second later, and a shared folder may have another path on another machine.

    Args:
        job: what this process was given.
        folder: as this process names it.
        world: the processes; every process must call this function.

    Raises:
        ConfigError: the processes were given different settings, data or objects.
    """
    given = world.gather((str(folder.path), _shared_settings(job)))
    path, settings = given[0]
    for rank, (_, others) in enumerate(given):
        changed = difference(settings, others)
        for key, (first, other) in changed.items():
            if key.endswith(_OF_A_MACHINE):
                continue
            raise ConfigError(
                f"process {rank} was given other settings than process 0: {key} = {other!r} ({first!r} there); give all"
                " processes of a run the same, which share its prompts and draws by themselves"
            )
    return folder if folder.config.is_file() else RunFolder(Path(path))


def _shared_settings(job: Job) -> dict[str, Any]:
    return {key: value for key, value in job.resolved.items() if key not in _OF_ONE_PROCESS}


def check_same_start(domain: Domain, world: World) -> None:
    """Refuses processes that hold different weights, or that have read different prompts.

    Args:
        domain: the domain of this process.
        world: the processes; every process must call this function.

    Raises:
        ConfigError: they differ.
    """
    if world.size == 1:
        return
    num_compared = min(_PROMPTS_COMPARED, domain.num_prompts)
    places = [place * domain.num_prompts // num_compared for place in range(num_compared)]
    keys = [prompt.key for prompt in domain.prompts(places)] if places else []
    starts = world.gather((domain.learner.fingerprint(), (domain.num_prompts, keys)))
    if len({fingerprint for fingerprint, _ in starts}) > 1:
        raise ConfigError(
            "the processes built different initial weights; build the model from the seeded global generators only"
        )
    first = starts[0][1]
    for rank, (_, prompts) in enumerate(starts):
        if prompts != first:
            raise ConfigError(
                f"process {rank} has other training prompts than process 0 ({prompts[0]} and {first[0]} of them); give"
                " all processes the same, in the same order: they share them by themselves"
            )
