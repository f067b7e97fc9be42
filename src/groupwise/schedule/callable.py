"""A user's schedule, by import path."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, final

from groupwise.config import PieceFromPath
from groupwise.schedule.base import Fixed, Value

_UNREAD: Mapping[str, Any] = {"extremes": lambda schedule: (0.0, 1.0)}


class _Own(PieceFromPath, Value):
    """The numbers of the user's schedule, each of which has to lie where the schedule says that it does."""

    base: ClassVar[type[Value]] = Value
    unread: ClassVar[Mapping[str, Any]] = _UNREAD

    def init(self) -> float | None:
        """Returns the state before the first step."""
        return self.called("init")

    def observe(self, state: float | None, measured: float | None) -> float | None:
        """Returns the state after an update."""
        return self.called("observe", state, measured)

    def at(self, step: int, state: float | None = None) -> float:
        """Returns the value at a step.

        Raises:
            ValueError: the value is no number, or lies outside `extremes()`.
        """
        value, (least, greatest) = self.called("at", step, state), self.extremes()
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= greatest:
            raise ValueError(
                f"schedule {self.path}: the value at step {step} is {value!r}, and its extremes() are {least:g} and"
                f" {greatest:g}; return a number between them, or mend extremes()"
            )
        return float(value)

    def extremes(self) -> tuple[float, float]:
        """Returns the least and the greatest value.

        Raises:
            ValueError: these are no two numbers in order.
        """
        ends = self.called("extremes")
        numbers = isinstance(ends, tuple) and len(ends) == 2 and all(isinstance(end, int | float) for end in ends)
        if not numbers or math.isnan(sum(map(float, ends))) or ends[0] > ends[1]:
            raise ValueError(
                f"schedule {self.path}: extremes() returned {ends!r}; return the least and the greatest value, two"
                " numbers"
            )
        return float(ends[0]), float(ends[1])

    def may_be_positive(self) -> bool:
        """Returns whether the greatest value is above 0."""
        return self.extremes()[1] > 0


@final
class CallableSchedule(_Own):
    """The schedule whose class is at `path`, configured by `settings`: a subclass of `Fixed` or `Measured`.

    Example:
        >>> adaptive = {"initial": 0.1, "target": 0.05}
        >>> CallableSchedule(path="groupwise.schedule.adaptive:Adaptive", settings=adaptive).at(0)
        0.1
    """


@final
class CallableFixed(_Own):
    """The schedule whose class is at `path`, configured by `settings`: a subclass of `Fixed`, which reads the step.

    Example:
        >>> linear = {"start": 1.0, "end": 0.0, "num_steps": 4}
        >>> CallableFixed(path="groupwise.schedule.linear:Linear", settings=linear).at(1)
        0.75
    """

    base: ClassVar[type[Value]] = Fixed
