"""How far updates have moved the weights, for rules that ask whether steps are too large or too small."""

from __future__ import annotations

from groupwise.diagnosis.series import Series
from groupwise.diagnosis.stage import Stage

CHANGE = "weights/change"


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
