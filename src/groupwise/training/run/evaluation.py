"""Evaluation by all processes together where the domain offers that, else on the first one; the best score, and early
stopping.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from groupwise.checkpoint import Checkpoint
from groupwise.domain.base import Domain
from groupwise.domain.protocol import CutsPasses, Evaluation, SharesEvaluation
from groupwise.domain.returned import checked_evaluation
from groupwise.memory import running_out
from groupwise.objective import ObjectiveState
from groupwise.streams import Streams
from groupwise.training.config import TrainConfig
from groupwise.training.distributed import World
from groupwise.training.step.passes import agree_on_passes
from groupwise.training.step.state import Progress, TrainState, restoring, whole_weights

PREFIX = "eval/"
"""The prefix of metrics of evaluations in `metrics.jsonl`."""


def evaluate(domain: Domain, progress: Progress, streams: Streams, world: World) -> Evaluation:
    """Evaluates and returns the metrics on every process.

    Args:
        domain: the policy and the prompts of the evaluation.
        progress: receives the metrics as the newest ones.
        streams: the random streams of the run.
        world: the processes; every process must call this function.

    Returns:
        the domain's evaluation; records and pictures on the first process at least.

    Raises:
        Fault: a user's domain returned no evaluation, or a metric that is not a number.
    """
    evaluation = Evaluation({})
    with progress.timed("evaluation"):
        domain.learner.eval()
        message = f"memory ran out in an evaluation; write {domain.memory_remedy}"
        with running_out(message), whole_weights(domain, world), torch.no_grad():
            if world.size > 1 and isinstance(domain, SharesEvaluation):
                evaluation = checked_evaluation(domain.evaluate_shared(streams=streams, peers=world))
            elif world.first:
                evaluation = checked_evaluation(domain.evaluate(streams=streams))
        metrics = dict(world.gather(evaluation.metrics)[0])
    if isinstance(domain, CutsPasses):
        agree_on_passes(domain, progress, world)
    progress.latest, progress.latest_step = metrics, progress.step
    return replace(evaluation, metrics=dict(metrics))


def score_now(domain: Domain, config: TrainConfig, progress: Progress, streams: Streams, world: World) -> float | None:
    """Evaluates the weights that the module holds now, those of the reference where it is active, and returns the
    metric that decides, turned so that more is better. The newest evaluation of the run stays what it was.

    Args:
        domain: the policy and the prompts of the evaluation.
        progress: receives the time.
        streams: the random streams of the run.
        world: the processes; every process must call this function.
    """
    latest = progress.latest, progress.latest_step
    metrics = dict(evaluate(domain, progress, streams, world).metrics)
    progress.latest, progress.latest_step = latest
    score = metrics.get(metric_name(config, metrics) or "")
    return None if score is None else config.signed_score(score)


def metric_name(config: TrainConfig, metrics: Mapping[str, float]) -> str | None:
    """Returns the metric that decides: the configured one, or the first of the evaluation.

    Args:
        metrics: the metrics of an evaluation, in the domain's order.

    Example:
        >>> metric_name(TrainConfig(), {"accuracy": 0.5, "length": 3.0})
        'accuracy'
    """
    return next(iter(metrics), None) if config.metric is None else config.metric


def note_score(progress: Progress, config: TrainConfig, score: float | None) -> bool:
    """Updates the counters by a new score; returns whether the score is the best of the run so far.

    Args:
        score: the new score; None where the evaluation lacks the metric.

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
    signed, gain = config.signed_score(score), 0.0 if config.early_stopping is None else config.early_stopping.min_gain
    # A gain is measured from the last gain that counted, not from the best score, so that small gains add up.
    counts_as_gain = progress.anchor is None or signed - config.signed_score(progress.anchor) > gain
    progress.evaluations_without_gain = 0 if counts_as_gain else progress.evaluations_without_gain + 1
    progress.anchor = score if counts_as_gain else progress.anchor
    is_best = progress.best is None or signed > config.signed_score(progress.best)
    if is_best:
        progress.best, progress.best_step = score, progress.step
    return is_best


# The model of a checkpoint, written as a folder by one process, whatever the number of processes that saved it.


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
    with restoring(f"{checkpoint.path} does not fit the model of this run", "give a checkpoint of this model"):
        # Exporting draws nothing, so that the generators stay as they are.
        state.restore({**checkpoint.load(), "generators": []}, World())
    with state.averaged():
        domain.save(folder)
