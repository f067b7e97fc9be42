"""Schedules: step -> value. A plain number is a constant; adaptive kinds carry one number of state and follow a
measurement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from groupwise.schedule.adaptive import Adaptive
from groupwise.schedule.callable import CallableFixed, CallableSchedule
from groupwise.schedule.constant import Constant
from groupwise.schedule.cosine import Cosine
from groupwise.schedule.linear import Linear
from groupwise.schedule.multiplicative import Multiplicative
from groupwise.schedule.threshold import Threshold
from groupwise.schedule.warm_up import WarmUp

__all__ = [
    "Adaptive",
    "AnySchedule",
    "CallableFixed",
    "CallableSchedule",
    "Constant",
    "Cosine",
    "EntropySchedule",
    "Linear",
    "Multiplicative",
    "NotNegative",
    "Schedule",
    "Threshold",
    "WarmUp",
]


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
