"""What schedules share: those that know the step alone, and those that follow a measurement."""

from __future__ import annotations

from abc import abstractmethod

from pydantic import Field

from groupwise.config import Config
from groupwise.config.numbers import Positive


class Value(Config):
    """A number that is asked for at every step. A kind that follows a measurement keeps one number of state."""

    @abstractmethod
    def init(self) -> float | None:
        """Returns the state before the first step, `None` where there is none."""

    @abstractmethod
    def at(self, step: int, state: float | None = None) -> float:
        """Returns the value at a step.

        Args:
            step: counted from 0.
            state: what `observe` returned last.
        """

    @abstractmethod
    def observe(self, state: float | None, measured: float | None) -> float | None:
        """Returns the state after an update.

        Args:
            state: before.
            measured: the newest value of what is followed, or `None`.
        """

    @abstractmethod
    def extremes(self) -> tuple[float, float]:
        """Returns the least and the greatest value that there ever is."""

    def may_be_positive(self) -> bool:
        """Tells whether the value is above 0 at any step."""
        return self.extremes()[1] > 0


class Fixed(Value):
    """A value that depends on the step alone: nothing is remembered, and no measurement is read."""

    def init(self) -> float | None:
        """Returns `None`: nothing is remembered."""
        return None

    def observe(self, state: float | None, measured: float | None) -> float | None:
        """Returns the state as it was."""
        return state


class Ramp(Fixed):
    """From one value to another in so many steps, then constant. The kinds differ in `between`.

    Args:
        start: the value at step 0.
        end: the value from step `num_steps` on.
        num_steps: how long it takes.
    """

    start: float = Field(allow_inf_nan=False)
    end: float = Field(allow_inf_nan=False)
    num_steps: Positive

    def at(self, step: int, state: float | None = None) -> float:
        """The value at a step, counted from 0.

        Args:
            step: from 0.
            state: not read.
        """
        return self.between(min(step / self.num_steps, 1.0))

    @abstractmethod
    def between(self, share: float) -> float:
        """The value where a share, 0 to 1, of the way is done.

        Args:
            share: of the way, 0 to 1.
        """

    def extremes(self) -> tuple[float, float]:
        """The least and the greatest value it ever has: its ends."""
        return min(self.start, self.end), max(self.start, self.end)


class Measured(Value):
    """A positive value that is multiplied by what was measured. Its one number of state is the value itself.

    Args:
        initial: the value before the first measurement.
    """

    initial: float = Field(gt=0, allow_inf_nan=False)

    def init(self) -> float | None:
        """The state before the first update."""
        return self.initial

    def at(self, step: int, state: float | None = None) -> float:
        """The value: the state, or `initial` before there is one.

        Args:
            step: not read.
            state: what `observe` gave last.
        """
        return self.initial if state is None else state

    def observe(self, state: float | None, measured: float | None) -> float | None:
        """The state after an update; where nothing was measured, as it was.

        Args:
            state: before.
            measured: the newest value of what is followed, or None.
        """
        return state if measured is None or state is None else self.moved(state, measured)

    @abstractmethod
    def moved(self, value: float, measured: float) -> float:
        """The value after one measurement.

        Args:
            value: before.
            measured: the newest value of what is followed.
        """
