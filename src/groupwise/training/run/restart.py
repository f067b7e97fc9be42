"""The resumption of a run: its newest whole checkpoint is restored, and its files are cut back to that checkpoint."""

from __future__ import annotations

from groupwise.checkpoint import CheckpointStore
from groupwise.config import ConfigError
from groupwise.processes import is_out_of_memory
from groupwise.reference.policy import ReferencePolicy
from groupwise.runs import RunFolder
from groupwise.track import MetricsFile, read_metrics
from groupwise.training.distributed import World
from groupwise.training.run.loop import Session
from groupwise.training.run.run_folder import forget_after
from groupwise.training.step.state import TrainState, reference_config


def restore_newest(store: CheckpointStore, folder: RunFolder, state: TrainState, world: World) -> list[str]:
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
        try:
            state.reference = ReferencePolicy(reference_config(record["reference"]), state.learner)
            state.restore(record, world)
        except Exception as error:  # a record of another run may fail in any way
            if is_out_of_memory(error):
                raise
            raise ConfigError(
                f"{checkpoint.path} does not fit this run: {error or type(error).__name__}; resume with what the run"
                " began with"
            ) from error
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
        remarks += _cut_back(folder, length, state.progress.step)
        forget_after(folder, -1 if checkpoint is None else state.progress.step)
    return remarks


def _cut_back(folder: RunFolder, length: int, step: int) -> list[str]:
    """Cuts the rows back to those of a checkpoint; returns a sentence where rows of the checkpoint are lost."""
    if not MetricsFile(folder.metrics).cut_back(length):
        return []
    last_step = [row["step"] for row in read_metrics(folder.metrics)][-1:]
    loss = (
        f"the rows after step {last_step[0]} up to step {step} are lost"
        if last_step
        else f"the rows up to step {step} are lost"
    )
    return [
        f"{folder.metrics} is shorter than the checkpoint says: {loss}; the run itself goes on as if they were there"
    ]


def replay_metrics(session: Session) -> None:
    """Gives the existing rows to live diagnosis without repeating the sentences that the run has already said."""
    if session.metrics is not None and session.watch is not None:
        for row in read_metrics(session.metrics.path):
            session.watch.see(row)
