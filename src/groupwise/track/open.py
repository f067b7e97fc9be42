"""From the configuration to the trackers themselves. Their libraries are imported only when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.runs import EvaluatedOn
from groupwise.track.config import TrackConfig
from groupwise.track.tracker import Tracker, Trackers


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
        from groupwise.track.tensorboard import TensorboardTracker

        trackers.append(TensorboardTracker(folder / "tensorboard", first_step))
    if config.wandb is not None:
        from groupwise.track.wandb import WandbTracker

        trackers.append(WandbTracker(config.wandb, folder, resolved, first_step))
    return Trackers(trackers)
