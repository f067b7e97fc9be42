"""Evaluation: the first process evaluates, all learn the numbers; what is best, and when to stop."""

from __future__ import annotations

from dataclasses import replace

from groupwise.domain.base import Domain
from groupwise.domain.protocol import Evaluation
from groupwise.streams import Streams
from groupwise.training.config import TrainConfig
from groupwise.training.distributed import World
from groupwise.training.progress import Progress

PREFIX = "eval/"
"""What metrics of evaluations are called in `metrics.jsonl`."""


def evaluate(domain: Domain, progress: Progress, streams: Streams, world: World) -> Evaluation:
    """Metrics of an evaluation on every process, and (on the first) what the model did.

    Args:
        domain: whose evaluation prompts.
        progress: receives the metrics as the newest.
        streams: of the run.
        world: the processes; every one must call.

    Returns:
        what the domain found; records and pictures on the first process only.
    """
    found = Evaluation({})
    metrics: dict[str, float] | None = None
    with progress.timed("evaluation"):
        if world.first:
            domain.learner.eval()
            found = domain.evaluate(streams=streams)
            metrics = dict(found.metrics)
        shared = world.gather(metrics)[0]
    progress.latest, progress.latest_step = dict(shared), progress.step
    return replace(found, metrics=dict(shared))


def metric_name(config: TrainConfig, metrics: dict[str, float]) -> str | None:
    """The metric of an evaluation that decides: the configured one, or the first that is reported.

    Args:
        config: of the stage.
        metrics: of an evaluation.

    Example:
        >>> metric_name(TrainConfig(), {"accuracy": 0.5, "length": 3.0})
        'accuracy'
    """
    return next(iter(metrics), None) if config.metric is None else config.metric


def signed_score(config: TrainConfig, score: float) -> float:
    """The score with a sign under which more is better.

    Args:
        config: of the stage.
        score: in the metric's unit.

    Example:
        >>> signed_score(TrainConfig(metric_goal="min"), 0.5)
        -0.5
    """
    return score if config.metric_goal == "max" else -score


def note_score(progress: Progress, config: TrainConfig, score: float | None) -> bool:
    """Takes a new score into account; says whether it is the best of the run so far.

    Args:
        progress: of the run.
        config: of the stage.
        score: the new one; None where the metric was not reported.

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
    signed, gain = signed_score(config, score), 0.0 if config.early_stopping is None else config.early_stopping.min_gain
    # Small gains add up: they are measured from the last one that counted, not from the best so far.
    enough = progress.anchor is None or signed - signed_score(config, progress.anchor) > gain
    progress.evaluations_without_gain = 0 if enough else progress.evaluations_without_gain + 1
    progress.anchor = score if enough else progress.anchor
    better = progress.best is None or signed > signed_score(config, progress.best)
    if better:
        progress.best, progress.best_step = score, progress.step
    return better


def should_stop(progress: Progress, config: TrainConfig) -> bool:
    """Whether early stopping ends the stage.

    Args:
        progress: of the run.
        config: of the stage.

    Example:
        >>> should_stop(Progress(evaluations_without_gain=9), TrainConfig())
        False
    """
    return config.early_stopping is not None and progress.evaluations_without_gain >= config.early_stopping.patience
