"""The model of a checkpoint, written as a folder by one process, whatever the number of processes that saved it."""

from __future__ import annotations

from pathlib import Path

from groupwise.checkpoint import Checkpoint
from groupwise.config import ConfigError
from groupwise.domain.base import Domain
from groupwise.objective import ObjectiveState
from groupwise.processes import is_out_of_memory
from groupwise.training.distributed import World
from groupwise.training.progress import Progress
from groupwise.training.step.state import TrainState


def write_model_of(checkpoint: Checkpoint, domain: Domain, folder: Path) -> None:
    """Writes the weights of a checkpoint (the averaged ones, where an average was kept) as a run does at its end.

    Args:
        checkpoint: a checkpoint of the run.
        domain: a fresh domain of the run, which has the weights of the checkpoint afterwards.
        folder: path of an existing empty folder.

    Raises:
        ConfigError: the checkpoint is of another model.
    """
    state = TrainState(Progress(), ObjectiveState(), domain.learner)
    try:
        # Exporting draws nothing, so that the generators stay as they are.
        state.restore({**checkpoint.load(), "generators": []}, World())
    except Exception as error:  # a record of another model may fail in any way
        if is_out_of_memory(error):
            raise
        raise ConfigError(
            f"{checkpoint.path} does not fit the model of this run: {error or type(error).__name__}"
        ) from error
    with state.averaged():
        domain.save(folder)
