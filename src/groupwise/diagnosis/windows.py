"""A metric window by window: whether it ever rose, and where it was best."""

from __future__ import annotations

from typing import final

from groupwise.diagnosis.series import WINDOW, Series

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
