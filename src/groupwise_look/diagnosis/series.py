"""The values of one metric over some steps, and what can be said of them: mean, error of the mean, whether a later
stretch lies above an earlier one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

WINDOW = 20
"""Steps a judgement is based on, unless a rule says otherwise."""


@final
@dataclass(frozen=True)
class Series:
    """Some values of a metric, in the order of their steps.

    Args:
        metric: its name in `metrics.jsonl`.
        steps: of the run.
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

    def __format__(self, spec: str) -> str:
        """Writes the mean, with three digits unless told otherwise."""
        return format(self.mean, spec or ".3g")

    @cached_property
    def mean(self) -> float:
        """Computes the mean; NaN of no values."""
        # Divided first: a sum of what diverged may be beyond all numbers.
        return math.fsum([value / len(self.values) for value in self.values]) if self.values else math.nan

    @cached_property
    def error(self) -> float:
        """Computes the standard error of the mean, as if steps were independent; 0 of fewer than two."""
        if len(self.values) < 2:
            return 0.0
        mean = self.mean
        return math.hypot(*(value - mean for value in self.values)) / math.sqrt(
            (len(self.values) - 1) * len(self.values)
        )

    def above(self, other: Series, errors: float = 2.0) -> bool:
        """Returns whether the mean lies above another stretch's by more than `errors` standard errors of the
        difference.

        Args:
            other: an earlier stretch, usually.
            errors: standard errors that the difference must exceed.
        """
        return self.mean - other.mean > errors * math.hypot(self.error, other.error)


_ERRORS = 3.0
"""Standard errors of a rise: of many windows one or another lies two above by luck."""


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
        """The one with the highest mean of those before the newest; the earliest among equals."""
        self.risen = False
        """True after any window lay above the first two, beyond noise."""
        self._start: Series | None = None
        self._open: list[tuple[int, float]] = []

    def add(self, step: int, value: float) -> None:
        """Takes the next value.

        Args:
            step: of the run.
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


NUM_FIRST, NUM_NEWEST = 2 * WINDOW, 3 * WINDOW
"""The longest stretches that rules look at, from the start and back from now."""


@final
class Column:
    """The first and the newest values of one metric.

    Args:
        metric: its name in `metrics.jsonl`.

    Example:
        >>> column = Column("reward")
        >>> column.add(range(1, 1001), [step / 2 for step in range(1, 1001)])
        >>> column.count, column.first(2).values, column.last(2).values, column.last(2, skip=3).steps
        (1000, [0.5, 1.0], [499.5, 500.0], [996, 997])
    """

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.count = 0
        self._first: list[tuple[int, float]] = []
        self._newest: deque[tuple[int, float]] = deque(maxlen=NUM_NEWEST)

    def add(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Takes the next values.

        Args:
            steps: of the run.
            values: one a step, finite.
        """
        self.count += len(values)
        if (room := NUM_FIRST - len(self._first)) > 0:
            self._first.extend(zip(steps[:room], values[:room], strict=True))
        self._newest.extend(zip(steps[-NUM_NEWEST:], values[-NUM_NEWEST:], strict=True))

    @property
    def newest(self) -> tuple[int, float]:
        """Returns the newest step and value; one must have been added."""
        return self._newest[-1]

    def first(self, count: int) -> Series | None:
        """Returns the first values; `None` where there are fewer.

        Args:
            count: how many, `NUM_FIRST` at most.
        """
        assert count <= NUM_FIRST, "nobody keeps more"
        return self._series(self._first[:count]) if self.count >= count else None

    def last(self, count: int, skip: int = 0) -> Series | None:
        """Returns the newest values, or the values before them; `None` where there are fewer.

        Args:
            count: how many; with `skip`, `NUM_NEWEST` at most.
            skip: how many newer ones are left out.
        """
        assert count + skip <= NUM_NEWEST, "nobody keeps more"
        end = len(self._newest) - skip
        return self._series(list(self._newest)[end - count : end]) if end >= count else None

    def _series(self, pairs: list[tuple[int, float]]) -> Series:
        return Series(self.metric, [step for step, _ in pairs], [value for _, value in pairs])


@final
class Spread:
    """All values of a metric until there are `most`; from then on every second, every fourth, ..., always with the
    first and the newest.

    Args:
        metric: its name in `metrics.jsonl`.
        most: values kept at most, beside the newest.

    Example:
        >>> spread = Spread("kl", most=4)
        >>> for step in range(1, 11):
        ...     spread.add(step, float(step))
        >>> spread.series.steps, spread.count
        ([1, 5, 9, 10], 10)
    """

    def __init__(self, metric: str, most: int) -> None:
        self.metric = metric
        self.count = 0
        self._most, self._stride = most, 1
        self._kept: list[tuple[int, float]] = []
        self._newest: tuple[int, float] | None = None

    def add(self, step: int, value: float) -> None:
        """Takes the next value.

        Args:
            step: of the run.
            value: finite.
        """
        if self.count % self._stride == 0:
            self._kept.append((step, value))
        self.count += 1
        self._newest = (step, value)
        if len(self._kept) > self._most:
            self._kept, self._stride = self._kept[::2], 2 * self._stride

    def replace_newest(self, value: float) -> None:
        """Takes another value in the place of the newest.

        Args:
            value: finite.
        """
        step, _ = self.newest
        if (self.count - 1) % self._stride == 0:
            self._kept[-1] = (step, value)
        self._newest = (step, value)

    @property
    def newest(self) -> tuple[int, float]:
        """Returns the newest step and value; one must have been added."""
        assert self._newest is not None, "nothing was added"
        return self._newest

    @property
    def series(self) -> Series:
        """Returns the kept values in the order of their steps."""
        newest = [self.newest] if (self.count - 1) % self._stride else []
        return self._series([*self._kept, *newest])

    def before(self, count: int, skip: int) -> Series | None:
        """Returns the `count` kept values that end where `skip` newer values begin; `None` where there are fewer.

        Args:
                skip: how many newer values are left out, kept or not.
        """
        # Of values 0, s, 2s, ... those before the value `self.count - skip`.
        end = -(-(self.count - skip) // self._stride)
        return self._series(self._kept[end - count : end]) if end >= count else None

    def _series(self, pairs: list[tuple[int, float]]) -> Series:
        return Series(self.metric, [step for step, _ in pairs], [value for _, value in pairs])
