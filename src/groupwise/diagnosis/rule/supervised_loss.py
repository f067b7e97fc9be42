"""The supervised loss beside a policy term, whatever a schedule does to its weight."""

from __future__ import annotations

from groupwise.diagnosis.series import Series
from groupwise.diagnosis.stage import PLAIN_SUPERVISED, Stage


def first_loss(stage: Stage, count: int) -> Series | None:
    """Returns the first values of the supervised loss without its coefficient; `None` where there are fewer.

    Args:
        stage: of the losses.
        count: how many.
    """
    if not stage.count("lambda_sup"):
        return stage.first("loss_sup", count)
    return _of_the_same_steps(stage.first("loss_sup", count), stage.first(PLAIN_SUPERVISED, count))


def last_loss(stage: Stage, count: int) -> Series | None:
    """Returns the newest values of the supervised loss without its coefficient; `None` where there are fewer.

    Args:
        stage: of the losses.
        count: how many.
    """
    if not stage.count("lambda_sup"):
        return stage.last("loss_sup", count)
    return _of_the_same_steps(stage.last("loss_sup", count), stage.last(PLAIN_SUPERVISED, count))


def _of_the_same_steps(loss: Series | None, plain: Series | None) -> Series | None:
    return plain if loss and plain and loss.steps == plain.steps else None
