"""The supervised loss beside a policy term, whatever a schedule does to its weight."""

from __future__ import annotations

from collections.abc import Callable

from groupwise.diagnosis.series import Series
from groupwise.diagnosis.stage import PLAIN_SUPERVISED, Stage


def first_loss(stage: Stage, count: int) -> Series | None:
    """Returns the first values of the supervised loss without its coefficient; `None` where there are fewer.

    Args:
        stage: of the losses.
        count: how many.
    """
    return _plain(stage, stage.first, count)


def last_loss(stage: Stage, count: int) -> Series | None:
    """Returns the newest values of the supervised loss without its coefficient; arguments as of `first_loss`."""
    return _plain(stage, stage.last, count)


def _plain(stage: Stage, values: Callable[[str, int], Series | None], count: int) -> Series | None:
    loss = values("loss_sup", count)
    if not stage.count("lambda_sup"):
        return loss
    plain = values(PLAIN_SUPERVISED, count)
    return plain if loss and plain and loss.steps == plain.steps else None
