"""Schedules: step -> value. A plain number is a constant; adaptive kinds carry one number of state and follow a
measurement.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, final

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from groupwise.config import Config, PieceFromPath
from groupwise.config.errors import Count, Length, Positive

# The bases of schedules: those that depend on the step only, and those that follow a measurement.


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
        state = self.initial if state is None else state
        return state if measured is None else self.moved(state, measured)

    @abstractmethod
    def moved(self, value: float, measured: float) -> float:
        """Returns the value after one measurement.

        Args:
            value: the value before the measurement.
            measured: the newest measurement.
        """


@final
class Adaptive(Measured):
    """Proportional control, once per update: `value <- value (1 + clip(measured / target - 1, -0.2, 0.2) / horizon)`.

    Args:
        initial: the value before the first measurement.
        target: what the measurement should be, in its own unit (nats for a divergence).
        horizon: number of updates over which a full error changes the value by a fifth.

    Example:
        >>> beta = Adaptive(initial=0.1, target=0.05, horizon=10)
        >>> round(beta.observe(beta.init(), measured=0.10), 6)
        0.102

    Source: Ziegler et al. 2019, arXiv 1909.08593, section 2.2.
    """

    kind: Literal["adaptive"] = "adaptive"
    target: float = Field(gt=0, allow_inf_nan=False)
    horizon: float = Field(default=100.0, ge=1, allow_inf_nan=False)

    def moved(self, value: float, measured: float) -> float:
        """Returns the value after one measurement."""
        error = min(max(measured / self.target - 1, -0.2), 0.2)
        return value * (1 + error / self.horizon)

    def extremes(self) -> tuple[float, float]:
        """Returns the least and the greatest possible value. The value is multiplied, so it stays above 0; it has no
        upper bound.
        """
        return 0.0, math.inf


@final
class Constant(Fixed):
    """`value` at every step. A plain number in a file means this.

    Args:
        value: the value at every step.

    Example:
        >>> Constant(value=0.04).at(1000)
        0.04
    """

    kind: Literal["constant"] = "constant"
    value: float = Field(allow_inf_nan=False)

    def at(self, step: int, state: float | None = None) -> float:
        """Returns the value, at every step."""
        return self.value

    def extremes(self) -> tuple[float, float]:
        """Returns the value as the least and as the greatest one."""
        return self.value, self.value


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


@final
class Multiplicative(Measured):
    """The rule of source 004, once per update: `x factor` above `upper`, `/ factor` below `lower`, kept inside
    `[minimum, maximum]`.

    Args:
        initial: the value before the first measurement.
        lower: below this the value is divided.
        upper: above this the value is multiplied.
        factor: the factor by which the value is multiplied or divided.
        minimum: the least possible value.
        maximum: the greatest possible value.

    Raises:
        ValueError: `lower` above `upper`, or `initial` outside `[minimum, maximum]`.

    Example:
        >>> beta = Multiplicative(initial=0.1, lower=0.01, upper=0.1)
        >>> (
        ...     round(beta.observe(0.1, measured=0.2), 6),
        ...     round(beta.observe(0.15, measured=0.001), 6),
        ...     beta.observe(0.1, measured=0.05),
        ... )
        (0.15, 0.1, 0.1)
    """

    kind: Literal["multiplicative"] = "multiplicative"
    lower: float = Field(ge=0, allow_inf_nan=False)
    upper: float = Field(gt=0, allow_inf_nan=False)
    factor: float = Field(default=1.5, gt=1, allow_inf_nan=False)
    minimum: float = Field(default=1e-6, gt=0, allow_inf_nan=False)
    maximum: float = Field(default=1e3, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.lower > self.upper:
            raise ValueError(f"lower ({self.lower}) must not exceed upper ({self.upper})")
        if not self.minimum <= self.initial <= self.maximum:
            raise ValueError(
                f"initial ({self.initial}) must lie in [minimum, maximum] = [{self.minimum}, {self.maximum}]"
            )
        return self

    def moved(self, value: float, measured: float) -> float:
        """Returns the value after one measurement."""
        value = (
            value * self.factor if measured > self.upper else value / self.factor if measured < self.lower else value
        )
        return min(max(value, self.minimum), self.maximum)

    def extremes(self) -> tuple[float, float]:
        """Returns `minimum` and `maximum`."""
        return self.minimum, self.maximum


@final
class Threshold(Value):
    """Step control, once per update: the coefficient rises by `delta`, to `high` at most, where the measurement is at
    or below `target`, and falls by `delta`, to `low` at least, where it is above. The value is the coefficient after
    the first and 0 after the second.

    The one number of state is the coefficient; it is negative while the value is 0. Before the first measurement the
    value is 0.

    Args:
        initial: the coefficient before the first measurement.
        target: the measurement at or below which the coefficient acts, in its own unit (nats for an entropy).
        delta: how far one update moves the coefficient.
        low, high: its bounds.

    Example:
        >>> coefficient = Threshold(initial=0.25, target=0.2, delta=0.125)
        >>> after_low = coefficient.observe(coefficient.init(), measured=0.1)
        >>> after_high = coefficient.observe(after_low, measured=0.3)
        >>> [coefficient.at(0, state) for state in (coefficient.init(), after_low, after_high)], after_high
        ([0.0, 0.375, 0.0], -0.25)

    Source: the adaptive entropy coefficient of Skywork-OR1, arXiv 2505.22312; the defaults are those of TRL.
    """

    kind: Literal["threshold"] = "threshold"
    initial: float = Field(ge=0, allow_inf_nan=False)
    target: float = Field(default=0.2, allow_inf_nan=False)
    delta: float = Field(default=0.005, gt=0, allow_inf_nan=False)
    low: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    high: float = Field(default=1.0, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) must not lie above high ({self.high})")
        return self

    def init(self) -> float:
        """Returns the state before the first update: the coefficient, at rest."""
        return -self.initial

    def at(self, step: int, state: float | None = None) -> float:
        """Returns the coefficient where it acts, and 0 where it rests.

        Args:
            step: not read.
            state: what `observe` gave last.
        """
        return max(self.init() if state is None else state, 0.0)

    def observe(self, state: float | None, measured: float | None) -> float | None:
        """Returns the state after an update; where nothing was measured, as it was.

        Args:
            state: before.
            measured: the newest value of what is followed, or None.
        """
        state = self.init() if state is None else state
        if measured is None or state is None:
            return state
        if measured <= self.target:
            return min(abs(state) + self.delta, self.high)
        return -max(abs(state) - self.delta, self.low)

    def extremes(self) -> tuple[float, float]:
        """Returns 0 and `high`."""
        return 0.0, max(self.high, self.initial)


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


# A user's schedule, by import path.

_UNREAD: Mapping[str, Any] = {"extremes": lambda schedule: (0.0, 1.0)}


class _Own(PieceFromPath, Value):
    """The numbers of the user's schedule. Each number must keep to the range that the schedule declares."""

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
            ValueError: the value is not a number, or is outside `extremes()`.
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
            ValueError: these are not two numbers in order.
        """
        ends = self.called("extremes")
        numbers = isinstance(ends, tuple) and len(ends) == 2 and all(isinstance(end, int | float) for end in ends)
        if not numbers or math.isnan(sum(map(float, ends))) or ends[0] > ends[1]:
            raise ValueError(
                f"schedule {self.path}: extremes() returned {ends!r}; return the least and the greatest value, two"
                " numbers"
            )
        return float(ends[0]), float(ends[1])


@final
class CallableSchedule(_Own):
    """The schedule whose class is at `path`, configured by `settings`: a subclass of `Fixed` or `Measured`.

    Example:
        >>> adaptive = {"initial": 0.1, "target": 0.05}
        >>> CallableSchedule(path="groupwise.schedule:Adaptive", settings=adaptive).at(0)
        0.1
    """


@final
class CallableFixed(_Own):
    """The schedule whose class is at `path`, configured by `settings`: a subclass of `Fixed`, which reads the step.

    Example:
        >>> linear = {"start": 1.0, "end": 0.0, "num_steps": 4}
        >>> CallableFixed(path="groupwise.schedule:Linear", settings=linear).at(1)
        0.75
    """

    base: ClassVar[type[Value]] = Fixed


def _number(value: Any) -> Any:
    if isinstance(value, (Mapping, BaseModel)):
        return value
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise ValueError(
            f'is {value!r}; write a number, or a table such as {{ kind = "linear", start = 1.0, end = 0.0, num_steps ='
            " 100 }"
        )
    if not math.isfinite(value):
        raise ValueError(f"{value} is no finite number; write one")
    return Constant(value=float(value))


_Fixed = Constant | Linear | Cosine | WarmUp | CallableFixed
_Entropy = Constant | Linear | Cosine | WarmUp | Threshold | CallableSchedule
_Any = Constant | Linear | Cosine | WarmUp | Adaptive | Multiplicative | CallableSchedule


def _not_negative(schedule: Any) -> Any:
    if schedule.extremes()[0] < 0:
        raise ValueError(f"comes down to {schedule.extremes()[0]:g} and must not be negative; write numbers from 0 up")
    return schedule


Schedule = Annotated[
    Annotated[_Fixed, Field(discriminator="kind")], BeforeValidator(_number, json_schema_input_type=float | _Fixed)
]
"""A value that depends on the step alone."""

NotNegative = Annotated[Schedule, AfterValidator(_not_negative)]
"""The same, never below 0."""

AnySchedule = Annotated[
    Annotated[_Any, Field(discriminator="kind")], BeforeValidator(_number, json_schema_input_type=float | _Any)
]
"""A value that depends on the step, or follows a measurement."""

EntropySchedule = Annotated[
    Annotated[_Entropy, Field(discriminator="kind")], BeforeValidator(_number, json_schema_input_type=float | _Entropy)
]
"""A coefficient that depends on the step, or follows the measured entropy."""
