"""TensorBoard event files in the run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError
from groupwise.track.member_table import as_rgb, images, table


class TensorboardTracker:
    """Writes every metric as a scalar, members as a table of text, images as images.

    Args:
        folder: `RUN/tensorboard`.
        first_step: the first step this process writes; TensorBoard hides what an earlier process wrote from there on.

    Raises:
        ConfigError: tensorboard is not installed.
    """

    def __init__(self, folder: Path, first_step: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "track.tensorboard = true: tensorboard is not installed; write `pip install tensorboard`"
            ) from error
        self._writer = SummaryWriter(str(folder), purge_step=first_step)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Writes one scalar a metric."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def members(self, step: int, place: str, records: Sequence[Mapping[str, Any]], pictures: Mapping[str, Any]) -> None:
        """Writes `PLACE/members` as text, `PLACE/NAME` as a strip of images, and every picture under `PLACE/NAME`."""
        import numpy as np

        columns, rows = table(records)
        if columns:
            lines = [columns, ["---"] * len(columns), *rows]
            self._writer.add_text(
                f"{place}/members",
                "\n".join("| " + " | ".join(_plain(cell) for cell in line) + " |" for line in lines),
                step,
            )
        for name, field_images in images(records).items():
            if len({image.shape for image in field_images}) == 1:
                self._writer.add_images(f"{place}/{name}", np.stack(field_images), step, dataformats="NHWC")
            else:
                self._writer.add_image(f"{place}/{name}", field_images[0], step, dataformats="HWC")
        for name, picture in pictures.items():
            self._writer.add_image(f"{place}/{name}", as_rgb(picture), step, dataformats="HWC")
        self._writer.flush()

    def note(self, text: str) -> None:
        """Sentences are for the console."""

    def alarm(self, rule: str) -> None:
        """Findings are for the console and `groupwise doctor`."""

    def close(self) -> None:
        """Closes the event file."""
        self._writer.close()


def _plain(cell: str) -> str:
    """Escapes the bars and line ends of a cell, which would end the cell in Markdown."""
    return cell.replace("|", "\\|").replace("\n", " ")
