"""The values of one metric over some steps, and what can be said of them: mean, error of the mean, whether a later
stretch lies above an earlier one.
"""

from __future__ import annotations

import math
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
