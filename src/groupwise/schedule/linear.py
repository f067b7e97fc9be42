"""A straight line from one value to another."""

from __future__ import annotations

from typing import Literal, final

from groupwise.schedule.base import Ramp


@final
class Linear(Ramp):
    """`start + (end - start) min(step / num_steps, 1)`, so `start` at step 0 and `end` from step `num_steps` on.

    Args:
        start: the value at step 0.
        end: the value from step `num_steps` on.
        num_steps: how long it takes.

    Example:
        >>> Linear(start=1.0, end=0.0, num_steps=4).at(1)
        0.75
    """

    kind: Literal["linear"] = "linear"

    def between(self, share: float) -> float:
        """Returns the value at a share of the way, from 0 at the start to 1 at the end."""
        return self.start + (self.end - self.start) * share
