"""The values of one metric over some steps, with statistics: mean, error of the mean, whether a later stretch is above
an earlier one.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

WINDOW = 20
"""The number of steps that a judgement is based on, unless a rule sets another."""


@final
@dataclass(frozen=True)
class Series:
    """Some values of a metric, in the order of their steps.

    Args:
        metric: its name in `metrics.jsonl`.
        steps: the steps of the run.
        values: one a step, finite.

    Example:
        >>> first, last = Series("reward", [1, 2], [0.25, 0.35]), Series("reward", [3, 4], [0.75, 0.85])
        >>> round(first.mean, 2), round(first.error, 2), last.above(first)
        (0.3, 0.05, True)
    """

    metric: str
    steps: Sequence[int]
    values: Sequence[float]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def name(self) -> str:
        """The metric; of an evaluation, without `eval/`."""
        return self.metric.removeprefix("eval/")

    def __format__(self, spec: str) -> str:
        """Writes the mean, with three digits unless the format asks for another number."""
        return format(self.mean, spec or ".3g")

    @cached_property
    def mean(self) -> float:
        """Computes the mean; NaN without values."""
        # Divided first: a sum of what diverged may be beyond all numbers.
        return math.fsum([value / len(self.values) for value in self.values]) if self.values else math.nan

    @cached_property
    def error(self) -> float:
        """Computes the standard error of the mean, as if steps were independent; 0 for fewer than two values."""
        if len(self.values) < 2:
            return 0.0
        mean = self.mean
        return math.hypot(*(value - mean for value in self.values)) / math.sqrt(
            (len(self.values) - 1) * len(self.values)
        )

    def above(self, other: Series, errors: float = 2.0) -> bool:
        """Returns whether the mean is above another stretch's by more than `errors` standard errors of the
        difference.

        Args:
            other: an earlier stretch, usually.
            errors: standard errors that the difference must exceed.
        """
        return self.mean - other.mean > errors * math.hypot(self.error, other.error)


_ERRORS = 3.0
"""The number of standard errors that a rise must exceed: among many windows, some are two errors higher by luck."""


@final
class Windows:
    """Consecutive windows of one metric, each as long as a judgement needs; of them the first, the newest and the best
    are kept.

    Args:
        metric: its name in `metrics.jsonl`.

    Example:
        >>> windows = Windows("reward")
        >>> for step in range(5 * WINDOW):
        ...     windows.add(step, float(step == 3 * WINDOW))
        >>> windows.best.steps[0], windows.newest.steps[0], windows.risen
        (60, 80, False)
    """

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.first: Series | None = None
        """The first whole window."""
        self.newest: Series | None = None
        """The newest whole window."""
        self.best: Series | None = None
        """Of the windows before the newest, the one with the highest mean; the earliest among equals."""
        self.risen = False
        """True after any window was above the first two, beyond noise."""
        self._start: Series | None = None
        self._open: list[tuple[int, float]] = []

    def add(self, step: int, value: float) -> None:
        """Takes the next value.

        Args:
            step: the step of the run.
            value: finite.
        """
        self._open.append((step, value))
        if len(self._open) == WINDOW:
            window = Series(self.metric, [step for step, _ in self._open], [value for _, value in self._open])
            self._open = []
            self._close(window)

    def _close(self, window: Series) -> None:
        before, self.newest = self.newest, window
        if before is None:
            self.first = window
            return
        if self.best is None or before.mean > self.best.mean:
            self.best = before
        if self._start is None:
            self._start = Series(self.metric, [*before.steps, *window.steps], [*before.values, *window.values])
            self.risen = before.above(self._start, errors=_ERRORS)
        self.risen = self.risen or window.above(self._start, errors=_ERRORS)


@final
class Column:
    """All values of one metric with their steps, sixteen bytes each.

    Args:
        metric: its name in `metrics.jsonl`.

    Example:
        >>> column = Column("reward")
        >>> for step in range(1, 1001):
        ...     column.add(step, step / 2)
        >>> len(column), column.first(2).values, column.last(2).values, column.last(2, skip=3).steps
        (1000, [0.5, 1.0], [499.5, 500.0], [996, 997])
    """

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self._steps, self._values = array("q"), array("d")

    def __len__(self) -> int:
        return len(self._values)

    def add(self, step: int, value: float) -> None:
        """Takes the next value.

        Args:
            step: the step of the run.
            value: finite.
        """
        self._steps.append(step)
        self._values.append(value)

    def set_at(self, step: int, value: float) -> None:
        """Takes the next value; one of the same step as the newest takes its place."""
        if self._steps and self._steps[-1] == step:
            self._values[-1] = value
        else:
            self.add(step, value)

    @property
    def newest(self) -> tuple[int, float]:
        """Returns the newest step and value; one must have been added."""
        return self._steps[-1], self._values[-1]

    @property
    def series(self) -> Series:
        """Returns all values."""
        return self._part(0, len(self))

    def first(self, count: int) -> Series | None:
        """Returns the first `count` values; `None` where there are fewer."""
        return self._part(0, count) if len(self) >= count else None

    def last(self, count: int, skip: int = 0) -> Series | None:
        """Returns the `count` values before the newest `skip`; `None` where there are fewer."""
        end = len(self) - skip
        return self._part(end - count, end) if end >= count else None

    def _part(self, start: int, end: int) -> Series:
        return Series(self.metric, self._steps[start:end].tolist(), self._values[start:end].tolist())
