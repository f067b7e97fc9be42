"""TensorBoard event files in the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from groupwise.config import ConfigError


class TensorboardTracker:
    """Writes every metric as a scalar.

    Args:
        folder: `RUN/tensorboard`.
        start: the first step of this process; a resumed run hides what an earlier one wrote after it.

    Raises:
        ConfigError: tensorboard is not installed.
    """

    def __init__(self, folder: Path, start: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError("track.tensorboard = true: tensorboard is not installed; write `pip install 'groupwise[track]'`") from error
        self._writer = SummaryWriter(str(folder), purge_step=start or None)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """One scalar a metric."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def note(self, text: str) -> None:
        """TensorBoard shows numbers only."""

    def close(self) -> None:
        """Closes the event file."""
        self._writer.close()
