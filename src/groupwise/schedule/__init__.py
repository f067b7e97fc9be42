"""Schedules: step -> value. A plain number is a constant; adaptive kinds carry one number of state and follow a measurement."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from groupwise.schedule.adaptive import Adaptive
from groupwise.schedule.constant import Constant
from groupwise.schedule.cosine import Cosine
from groupwise.schedule.linear import Linear
from groupwise.schedule.multiplicative import Multiplicative

__all__ = ["Adaptive", "AnySchedule", "Constant", "Cosine", "Linear", "Multiplicative", "Schedule"]


def _number(value: Any) -> Any:
    return Constant(value=float(value)) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


_Fixed = Constant | Linear | Cosine
_Any = _Fixed | Adaptive | Multiplicative

Schedule = Annotated[Annotated[_Fixed, Field(discriminator="kind")], BeforeValidator(_number, json_schema_input_type=float | _Fixed)]
"""A value that depends on the step alone."""

AnySchedule = Annotated[Annotated[_Any, Field(discriminator="kind")], BeforeValidator(_number, json_schema_input_type=float | _Any)]
"""A value that depends on the step, or follows a measurement."""
