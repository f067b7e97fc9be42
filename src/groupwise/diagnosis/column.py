"""The first and the newest values of one metric in a stage, however many steps there are."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import final

from groupwise.diagnosis.series import WINDOW, Series

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
