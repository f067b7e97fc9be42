"""Held-out evaluation: the first process evaluates, all learn the numbers; what is best, and when to stop."""

from __future__ import annotations

from typing import Any

from groupwise.config import ConfigError, Problem, nearest
from groupwise.domain.protocol import Domain
from groupwise.streams import Streams
from groupwise.train.config import TrainConfig
from groupwise.train.distributed import World
from groupwise.train.progress import Progress

PREFIX = "eval/"
"""What held-out metrics are called in `metrics.jsonl`."""


def evaluate(domain: Domain, progress: Progress, streams: Streams, world: World) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Held-out metrics on every process, and (on the first) what the model did."""
    records: list[dict[str, Any]] = []
    metrics: dict[str, float] | None = None
    with progress.timed("evaluation"):
        if world.first:
            domain.module.eval()
            found = domain.evaluate(streams=streams)
            metrics, records = dict(found.metrics), [dict(record) for record in found.records]
        shared = world.gather(metrics)[0]
    progress.latest, progress.latest_step = dict(shared), progress.step
    return dict(shared), records


def metric_name(config: TrainConfig, metrics: dict[str, float]) -> str | None:
    """The held-out metric that decides.

    Raises:
        ConfigError: the configured one is not reported.

    Example:
        >>> metric_name(TrainConfig(), {"accuracy": 0.5, "length": 3.0})
        'accuracy'
    """
    if config.metric is None:
        return next(iter(metrics), None)
    if config.metric not in metrics:
        problem = Problem(f'train.metric = "{config.metric}"', "is not a held-out metric of this domain", tuple(metrics), nearest(config.metric, metrics))
        raise ConfigError(problem)
    return config.metric


def note_score(progress: Progress, config: TrainConfig, score: float | None) -> bool:
    """Takes a new held-out score into account; says whether it is the best of the run so far.

    Example:
        >>> progress = Progress()
        >>> [note_score(progress, TrainConfig(), score) for score in (0.5, 0.4, 0.6)]
        [True, False, True]
        >>> progress.evaluations_without_gain
        0
    """
    progress.score = score
    if score is None:
        return False
    sign = 1.0 if config.metric_goal == "max" else -1.0
    gain = 0.0 if config.early_stopping is None else config.early_stopping.min_gain
    enough = progress.best is None or sign * (score - progress.best) > gain
    progress.evaluations_without_gain = 0 if enough else progress.evaluations_without_gain + 1
    better = progress.best is None or sign * (score - progress.best) > 0
    if better:
        progress.best, progress.best_step = score, progress.step
    return better


def should_stop(progress: Progress, config: TrainConfig) -> bool:
    """Whether early stopping ends the stage."""
    return config.early_stopping is not None and progress.evaluations_without_gain >= config.early_stopping.patience
