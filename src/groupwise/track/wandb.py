"""Weights & Biases, online or as a local folder to send later."""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError
from groupwise.runs import EvaluatedOn
from groupwise.runs.folder import RunFolder
from groupwise.track.config import TrackConfig, WandbConfig
from groupwise.track.tracker import Tracker, Trackers, as_rgb, images, read_metrics, table

_RUN_ID = "wandb-run-id"
"""The file in the run folder that holds W&B's id of the run, so that a resumed run continues there."""


class WandbTracker(Tracker):
    """Logs every metric of a step, members as a table, images as images, under the names that TensorBoard gets.

    A resumed run goes on in the run it began. W&B's process may have been killed before it had written, so that the
    steps before are logged from `metrics.jsonl`, without members and pictures: online those that the run lacks, offline
    all of them, into a new file.

    Args:
        config: project and mode.
        folder: the run folder; offline files go to `RUN/wandb`.
        resolved: the run's resolved configuration.
        first_step: the first step this process will report.

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
            self._next = 0
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

    def close(self) -> None:
        """Ends the run at W&B. If W&B's process is gone, its hooks into Python's imports are removed too, because they
        would make later imports fail.
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
                # A number that is not finite is `null` there.
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


class TensorboardTracker(Tracker):
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

    def close(self) -> None:
        """Closes the event file."""
        self._writer.close()


def _plain(cell: str) -> str:
    """Escapes the bars and line ends of a cell, which would end the cell in Markdown."""
    return cell.replace("|", "\\|").replace("\n", " ")


# From the configuration to the trackers themselves. Their libraries are imported only when asked for.


def open_trackers(
    config: TrackConfig,
    folder: Path,
    *,
    total_steps: int,
    score: str | None,
    resolved: Mapping[str, Any],
    start: int = 0,
    first_step: int = 0,
    latest: Mapping[str, float] | None = None,
    evaluated_on: EvaluatedOn | None = None,
    first_process: bool = True,
) -> Trackers:
    """Opens the trackers of one run; none on processes that are not the first.

    Args:
        config: the trackers that are asked for.
        folder: the run folder.
        total_steps: the number of steps of the run.
        score: the metric of an evaluation that the console shows.
        resolved: the resolved configuration, for W&B.
        start: steps already done.
        first_step: the first step that this process will report: 0 for a new run, the step after the checkpoint for a
            resumed one.
        latest: the newest metrics of a resumed run's evaluations, for the console.
        evaluated_on: whether the prompts of the evaluations are trained on.
        first_process: whether this process prints and writes.

    Returns:
        the trackers as one.

    Raises:
        ConfigError: the library of a tracker is not installed.

    Example:
        >>> open_trackers(TrackConfig(console="lines"), Path("runs/a"), total_steps=3, score=None, resolved={}).names
        ['ConsoleTracker']
    """
    trackers: list[Tracker] = []
    if not first_process:
        return Trackers([])
    if config.console != "none":
        from groupwise.track.console import ConsoleTracker

        live = False if config.console == "lines" else None
        trackers.append(
            ConsoleTracker(total_steps, score, live=live, start=start, latest=latest, evaluated_on=evaluated_on)
        )
    if config.tensorboard:
        trackers.append(TensorboardTracker(folder / "tensorboard", first_step))
    if config.wandb is not None:
        trackers.append(WandbTracker(config.wandb, folder, resolved, first_step))
    return Trackers(trackers)
