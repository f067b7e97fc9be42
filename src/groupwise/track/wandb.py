"""Weights & Biases, online or as a local folder to send later."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError
from groupwise.runs.folder import RunFolder
from groupwise.track.config import WandbConfig
from groupwise.track.member_table import as_rgb, images, table
from groupwise.track.metrics import read_metrics
from groupwise.track.wandb_file import rows, wait_until_written

log = logging.getLogger("groupwise")

_RUN_ID = "wandb-run-id"
"""The file in the run folder that keeps the id, so that a resumed run goes on in the same run there."""


class WandbTracker:
    """Logs every metric of a step, members as a table, images as images, under the names that TensorBoard gets.

    A resumed run goes on in the run it began. What that run holds already is not logged again: steps repeat bit for
    bit. What it lacks, since W&B's process was killed before it had written, is logged from `metrics.jsonl`, without
    members and pictures.

    Args:
        config: project and mode.
        folder: the run folder; offline files go to `RUN/wandb`.
        resolved: the run's resolved configuration.
        first_step: the first step this process will say anything of.

    Raises:
        ConfigError: wandb is not installed, or cannot start.
    """

    def __init__(self, config: WandbConfig, folder: Path, resolved: Mapping[str, Any], first_step: int = 0) -> None:
        try:
            import wandb  # pyright: ignore[reportMissingImports]  # an extra
        except ImportError as error:
            raise ConfigError("track.wandb: wandb is not installed; write `pip install wandb`") from error
        self._wandb: Any = wandb
        settings = wandb.Settings(silent=True)
        try:
            identity = _identity(folder)
            self._next = _last_offline_step(folder, identity) + 1
            self._run = wandb.init(
                project=config.project,
                mode=config.mode,
                dir=str(folder),
                name=folder.name,
                id=identity,
                resume="allow" if config.mode == "online" else None,
                config=dict(resolved),
                settings=settings,
            )
            if config.mode == "online":
                self._next = self._run.step
            self._catch_up(RunFolder(folder).metrics, first_step)
        # No account, no network, no room: whatever it is, a run that is not followed as asked should not begin.
        except Exception as error:
            message = (
                f'track.wandb.mode = "{config.mode}": Weights & Biases could not start: {type(error).__name__}: {error}'
            )
            raise ConfigError(f'{message}; write `wandb login` first, or track.wandb.mode = "offline"') from error

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Writes one row."""
        self._log(step, dict(values))

    def members(self, step: int, place: str, records: Sequence[Mapping[str, Any]], pictures: Mapping[str, Any]) -> None:
        """Writes `PLACE/members` as a table, `PLACE/NAME` as images, and every picture under `PLACE/NAME`."""
        columns, lines = table(records)
        logged: dict[str, Any] = {f"{place}/members": self._wandb.Table(columns=columns, data=lines)} if columns else {}
        logged |= {
            f"{place}/{name}": [self._wandb.Image(image) for image in field_images]
            for name, field_images in images(records).items()
        }
        logged |= {f"{place}/{name}": self._wandb.Image(as_rgb(picture)) for name, picture in pictures.items()}
        self._log(step, logged)

    def note(self, text: str) -> None:
        """Sentences are for the console."""

    def alarm(self, rule: str) -> None:
        """Findings are for the console and `groupwise doctor`."""

    def close(self) -> None:
        """Ends the run there. Where W&B's process is gone, what it hooked into Python's imports goes too: it would fail
        what is imported later.
        """
        try:
            self._run.finish()
        except Exception:
            with suppress(Exception):
                self._wandb.teardown()
            raise

    def _catch_up(self, path: Path, first_step: int) -> None:
        for row in read_metrics(path) if path.is_file() else ():
            step = row["step"]
            if isinstance(step, int) and step < first_step:
                # What is not finite is `null` there.
                self._log(
                    step,
                    {
                        name: float("nan") if value is None else value
                        for name, value in row.items()
                        if name not in {"step", "stage"}
                    },
                )

    def _log(self, step: int, values: dict[str, Any]) -> None:
        if step >= self._next and values:
            self._run.log(values, step=step)


def _identity(folder: Path) -> str:
    """Returns the run's id at W&B, which is made once and kept in the run folder."""
    path = folder / _RUN_ID
    if not path.is_file():
        path.write_text(uuid.uuid4().hex[:8])
    return path.read_text().strip()


def _last_offline_step(folder: Path, identity: str) -> int:
    """Returns the last step whose metrics are in offline files of this run; -1 where there are none. W&B cannot take a
    step back from a file.
    """
    last = -1
    for path in sorted((folder / "wandb").glob(f"offline-run-*/run-{identity}.wandb")):
        if not wait_until_written(path):
            log.warning(f"{path} is still being written; steps that it does not hold yet may be logged twice")
        last = max([last, *(int(row["_step"]) for row in rows(path) if _holds_metrics(row))])
    return last


def _holds_metrics(row: Mapping[str, Any]) -> bool:
    """Returns whether a row has metrics. A run that an error ended within a step may have logged only the members of
    that step, whose numbers stand below a key that ends in `._type`.
    """
    media_names = tuple(name.removesuffix("_type") for name in row if name.endswith("._type"))
    return any(
        isinstance(value, int | float) and not name.startswith(("_", *media_names)) for name, value in row.items()
    )
