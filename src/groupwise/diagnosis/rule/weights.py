"""How far updates have moved the weights, for rules that ask whether steps are too large or too small."""

from __future__ import annotations

from groupwise.diagnosis.series import Series
from groupwise.diagnosis.stage import Stage

CHANGE = "weights/change"
_DWINDLED = 0.1
_AS_LARGE = 0.5


def largest_change(stage: Stage, count: int) -> Series | None:
    """Returns the larger of the first and the newest relative changes of the weights by an update.

    Args:
        stage: the rows.
        count: steps at either end; fewer where fewer made an update, as where the first one broke everything.
    """
    count = min(count, stage.count(CHANGE))
    if count == 0:
        return None
    ends = [series for series in (stage.first(CHANGE, count), stage.last(CHANGE, count)) if series is not None]
    return max(ends, key=lambda series: series.mean, default=None)


def path(stage: Stage, count: int) -> float | None:
    """Returns about how long the way of the weights has been, relative to their size: the mean change of an update
    times the number of steps that made one.

    Args:
        stage: the rows.
        count: steps at either end from which the mean is taken.
    """
    first, last = stage.first(CHANGE, count), stage.last(CHANGE, count)
    if first is None or last is None:
        return None
    return (first.mean + last.mean) / 2 * stage.count(CHANGE)


def dwindled(stage: Stage, count: int) -> tuple[Series, Series] | None:
    """Returns the first and the newest changes of the weights by an update, where those for one learning rate have
    become a tenth of what they were, and the gradient is at least half as large as it was; otherwise `None`.

    An optimiser that divides by the size of its gradients makes equal steps of equal gradients. Where steps dwindle,
    it divides by the larger gradients of an earlier stage, and the first steps were those of its momentum.

    Args:
        stage: the rows.
        count: steps at either end.
    """
    change, rate, gradient = (stage.ends(name, count) for name in (CHANGE, "learning_rate", "grad_norm"))
    if change is None or rate is None or gradient is None or min(rate[1].values) <= 0:
        return None
    if change[0].mean <= 0 or rate[0].mean <= 0:
        return None
    share = (change[1].mean / rate[1].mean) / (change[0].mean / rate[0].mean)
    return change if share < _DWINDLED and gradient[1].mean >= _AS_LARGE * gradient[0].mean else None
