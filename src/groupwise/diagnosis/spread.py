"""Values of one metric spread evenly over a stage of any length, for what is judged by where it came from."""

from __future__ import annotations

from typing import final

from groupwise.diagnosis.series import Series


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
