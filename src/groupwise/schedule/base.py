"""The bases of schedules: those that depend on the step only, and those that follow a measurement."""

from __future__ import annotations

from abc import abstractmethod

from pydantic import Field

from groupwise.config import Config
from groupwise.config.numbers import Positive


class Value(Config):
    """A number that may differ at every step. A kind that follows a measurement has one number of state."""

    @abstractmethod
    def init(self) -> float | None:
        """Returns the state before the first step, `None` where there is none."""

    @abstractmethod
    def at(self, step: int, state: float | None = None) -> float:
        """Returns the value at a step.

        Args:
            step: the step, counted from 0.
            state: the last result of `observe`.
        """

    @abstractmethod
    def observe(self, state: float | None, measured: float | None) -> float | None:
        """Returns the state after an update.

        Args:
            state: the state before the update.
            measured: the newest measurement, or `None` without one.
        """

    @abstractmethod
    def extremes(self) -> tuple[float, float]:
        """Returns the least and the greatest value over all steps."""

    def may_be_positive(self) -> bool:
        """Returns whether the value is above 0 at any step."""
        return self.extremes()[1] > 0


class Fixed(Value):
    """A value that depends on the step only: it has no state and reads no measurement."""

    def init(self) -> float | None:
        """Returns `None`, since there is no state."""
        return None

    def observe(self, state: float | None, measured: float | None) -> float | None:
        """Returns the state as it was."""
        return state


class Ramp(Fixed):
    """A value that goes from `start` to `end` in `num_steps` steps and then stays. The kinds differ in `between`.

    Args:
        start: the value at step 0.
        end: the value from step `num_steps` on.
        num_steps: the number of steps from `start` to `end`.
    """

    start: float = Field(allow_inf_nan=False)
    end: float = Field(allow_inf_nan=False)
    num_steps: Positive

    def at(self, step: int, state: float | None = None) -> float:
        """Returns the value at a step, counted from 0."""
        return self.between(min(step / self.num_steps, 1.0))

    @abstractmethod
    def between(self, share: float) -> float:
        """Returns the value at a share of the way, from 0 at the start to 1 at the end."""

    def extremes(self) -> tuple[float, float]:
        """Returns the least and the greatest value, which are the ends."""
        return min(self.start, self.end), max(self.start, self.end)


class Measured(Value):
    """A positive value that is multiplied by a factor at every measurement. Its state is the value itself.

    Args:
        initial: the value before the first measurement.
    """

    initial: float = Field(gt=0, allow_inf_nan=False)

    def init(self) -> float | None:
        """Returns the state before the first update."""
        return self.initial

    def at(self, step: int, state: float | None = None) -> float:
        """Returns the state, or `initial` before the first update."""
        return self.initial if state is None else state

    def observe(self, state: float | None, measured: float | None) -> float | None:
        """Returns the state after an update; without a measurement it does not change."""
        return state if measured is None or state is None else self.moved(state, measured)

    @abstractmethod
    def moved(self, value: float, measured: float) -> float:
        """Returns the value after one measurement.

        Args:
            value: the value before the measurement.
            measured: the newest measurement.
        """
