"""The objective's state between updates: a JSON-able record, saved in checkpoints."""

from __future__ import annotations

from typing import final

from groupwise.config import Config
from groupwise.objective.running import Running


@final
class ObjectiveState(Config):
    """State of an objective. Passed in and returned, never hidden.

    Args:
        step: optimiser steps so far; schedules read it.
        beta: the current coefficient of an adaptive divergence, `None` for schedules that depend on the step alone.
        entropy: the same of the entropy bonus.
        running: running statistics of rewards, for advantages that use them.

    Example:
        >>> state = ObjectiveState(step=3)
        >>> ObjectiveState.model_validate(state.model_dump(mode="json")) == state
        True
    """

    step: int = 0
    beta: float | None = None
    entropy: float | None = None
    running: Running = Running()
