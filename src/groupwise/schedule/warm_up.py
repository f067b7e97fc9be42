"""A rise to a peak before the fall to an end, as the schedules of transformers have it."""

from __future__ import annotations

import math
from typing import Literal, final

from pydantic import Field

from groupwise.config.numbers import Count, Length, Positive
from groupwise.schedule.base import Fixed


@final
class WarmUp(Fixed):
    """`peak u / warm_up_updates` before update `warm_up_updates`; after it a fall from the peak to `end` at update
    `num_updates`, along half a cosine or a line, or `peak` for good.

    It begins at 0 and reaches its peak before it falls. `optimiser.warm_up_steps`, on the other hand, is a factor on a
    schedule that falls from step 0 on, so that the peak is not reached.

    Args:
        peak: the value at update `warm_up_updates`.
        end: the value from update `num_updates` on, where it falls.
        warm_up_updates: updates of the rise; 0 begins at the peak.
        num_updates: updates of rise and fall together.
        fall: the course after the peak.
        updates_per_step: updates in a step, which have one value, the mean of theirs.

    Example:
        >>> schedule = WarmUp(peak=1.0, warm_up_updates=2, num_updates=6, fall="linear")
        >>> [schedule.at(step) for step in range(7)]
        [0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0]

    Source: `get_cosine_schedule_with_warmup`, `get_linear_schedule_with_warmup` and
    `get_constant_schedule_with_warmup` of transformers.
    """

    kind: Literal["warm_up"] = "warm_up"
    peak: float = Field(allow_inf_nan=False)
    end: float = Field(default=0.0, allow_inf_nan=False)
    warm_up_updates: Count
    num_updates: Positive
    fall: Literal["cosine", "linear", "none"] = "cosine"
    updates_per_step: Length = 1

    def at(self, step: int, state: float | None = None) -> float:
        """Returns the mean of the values of the updates of a step, counted from 0."""
        first = step * self.updates_per_step
        return math.fsum(map(self._of_update, range(first, first + self.updates_per_step))) / self.updates_per_step

    def extremes(self) -> tuple[float, float]:
        """Returns the least and the greatest value over all updates."""
        ends = [self.peak, *([0.0] if self.warm_up_updates else []), *([] if self.fall == "none" else [self.end])]
        return min(ends), max(ends)

    def _of_update(self, update: int) -> float:
        if update < self.warm_up_updates:
            return self.peak * update / self.warm_up_updates
        if self.fall == "none":
            return self.peak
        share = min((update - self.warm_up_updates) / max(self.num_updates - self.warm_up_updates, 1), 1.0)
        remaining = 1 - share if self.fall == "linear" else (1 + math.cos(math.pi * share)) / 2
        return self.end + (self.peak - self.end) * remaining
