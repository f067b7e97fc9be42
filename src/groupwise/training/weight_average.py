"""A running average of the weights, which replaces them in evaluations and saved models. Imports no torch."""

from __future__ import annotations

from typing import Annotated, final

from pydantic import Field

from groupwise.config import Config


@final
class WeightAverage(Config):
    """The average `average <- d average + (1 - d) theta` after every update, with `d = min(decay, (1 + n) / (10 + n))`
    after `n` updates.

    Training goes on with the weights themselves; evaluation, the best model and the final one take the average. The
    rising decay lets the average forget its first values. With an adapter only the adapter's weights are averaged.

    Args:
        decay: the average's share in the long run; about `1 / (1 - decay)` updates are remembered.
        warm_up: true lets the decay rise to `decay`; false uses `decay` from the first update on.

    Example:
        >>> average = WeightAverage(decay=0.9)
        >>> [round(average.decay_after(n), 3) for n in (1, 10, 1000)]
        [0.182, 0.55, 0.9]

    Source: Polyak and Juditsky 1992; the rising decay is that of diffusers' `EMAModel`.
    """

    decay: Annotated[float, Field(ge=0, lt=1)] = 0.99
    warm_up: bool = True

    def decay_after(self, num_updates: int) -> float:
        """Returns the average's share at its `num_updates`-th update, from 1.

        Args:
            num_updates: optimiser steps since the average began, this one included.
        """
        return min(self.decay, (1 + num_updates) / (10 + num_updates)) if self.warm_up else self.decay
