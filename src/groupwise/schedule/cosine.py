"""Half a cosine from one value to another."""

from __future__ import annotations

import math
from typing import Literal, final

from groupwise.schedule.base import Ramp


@final
class Cosine(Ramp):
    """`end + (start - end) (1 + cos(pi min(step / num_steps, 1))) / 2`.

    Args:
        start: the value at step 0.
        end: the value from step `num_steps` on.
        num_steps: how long it takes.

    Example:
        >>> Cosine(start=1.0, end=0.0, num_steps=4).at(2)
        0.5
    """

    kind: Literal["cosine"] = "cosine"

    def between(self, share: float) -> float:
        """Returns the value at a share of the way, from 0 at the start to 1 at the end."""
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * share)) / 2
