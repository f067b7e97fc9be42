"""Going on where a run stopped: the newest whole checkpoint, and the run's files cut back to it."""

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


def take_back(store: CheckpointStore, folder: RunFolder, state: TrainState, world: World) -> list[str]:
    """Restores the newest whole checkpoint, if there is one, into a fresh state.

    `metrics.jsonl` loses the rows and `rollouts/` the files that came after it: the run writes them again.

    Args:
        store: of the run.
        folder: of the run.
        state: fresh; receives the checkpoint.
        world: the processes; every one must call.

    Returns:
        Sentences to say.
    """
    remarks = [
        f"{path} is not whole (a write was cut off, or it was changed afterwards) and is not used"
        for path in store.damaged()
    ]
    found = store.latest()
    steps = world.gather(None if found is None else found.step)
    assert len(set(steps)) == 1, "processes see different checkpoints"
    length = 0
    if found is None:
        remarks.append("no whole checkpoint was found: the run starts again from the beginning")
    else:
        record = found.load()
        try:
            state.reference = ReferencePolicy(reference_config(record["reference"]), state.learner)
            state.restore(record, world)
        except Exception as error:  # a stranger's record fails in any way
            if is_out_of_memory(error):
                raise
            raise ConfigError(
                f"{found.path} does not fit this run: {error or type(error).__name__}; resume with what the run began"
                " with"
            ) from error
        if (before := len(record["generators"])) != world.size:
            remarks.append(
                f"the checkpoint is of {before} process{'es' * (before > 1)} and this is a run of {world.size}: the run"
                " goes on, but dropout draws other numbers and sums round otherwise, so it does not repeat the"
                " uninterrupted run bit for bit"
            )
        length = record["metrics_length"]
        remarks.append(f"resumed at step {state.progress.step}")
    world.barrier()
    if world.first:
        store.clear_damaged()
        remarks += _cut_back(folder, length, state.progress.step)
        forget_after(folder, -1 if found is None else state.progress.step)
    return remarks


def _cut_back(folder: RunFolder, length: int, step: int) -> list[str]:
    """Cuts the rows back to a checkpoint's; says which of them are gone."""
    if not MetricsFile(folder.metrics).cut_back(length):
        return []
    last = [row["step"] for row in read_metrics(folder.metrics)][-1:]
    kept = (
        f"the rows after step {last[0]} up to step {step} are lost" if last else f"the rows up to step {step} are lost"
    )
    return [
        f"{folder.metrics} is shorter than the checkpoint says: {kept}; the run itself goes on as if they were there"
    ]


def recall(session: Session) -> None:
    """Shows live diagnosis the rows that are there already; what it finds was said then.

    Args:
        session: of the run.
    """
    if session.metrics is not None and session.watch is not None:
        for row in read_metrics(session.metrics.path):
            session.watch.see(row)
