"""A schedule is a number or a table with a kind."""

from __future__ import annotations

import re

import pytest
from pydantic import TypeAdapter, ValidationError

from groupwise.schedule import AnySchedule, Constant, Linear, Multiplicative, NotNegative, Schedule


def test_a_plain_number_is_a_constant() -> None:
    assert TypeAdapter(Schedule).validate_python(2) == Constant(value=2.0)
    table = {"kind": "linear", "start": 0.0, "end": 1.0, "num_steps": 3}
    assert TypeAdapter(Schedule).validate_python(table) == Linear(start=0.0, end=1.0, num_steps=3)


def test_kinds_that_follow_a_measurement_are_taken_only_where_one_is_made() -> None:
    table = {"kind": "multiplicative", "initial": 0.1, "lower": 0.0, "upper": 1.0}
    assert TypeAdapter(AnySchedule).validate_python(table) == Multiplicative(initial=0.1, lower=0.0, upper=1.0)
    with pytest.raises(ValidationError, match="multiplicative"):
        TypeAdapter(Schedule).validate_python(table)


@pytest.mark.parametrize("value", [True, "unset", [1.0], None])
def test_a_value_that_is_neither_number_nor_table_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match=f"is {re.escape(repr(value))}; write a number, or a table such as"):
        TypeAdapter(Schedule).validate_python(value)


@pytest.mark.parametrize(
    "table",
    [
        float("nan"),
        float("inf"),
        {"kind": "linear", "start": float("nan"), "end": 1.0, "num_steps": 3},
        {"kind": "cosine", "start": 1.0, "end": float("-inf"), "num_steps": 3},
        {"kind": "constant", "value": float("nan")},
        {"kind": "adaptive", "initial": float("inf"), "target": 1.0},
        {"kind": "multiplicative", "initial": 0.1, "lower": 0.0, "upper": float("inf")},
    ],
)
def test_numbers_that_are_not_finite_are_refused(table: object) -> None:
    with pytest.raises(ValidationError, match="finite"):
        TypeAdapter(AnySchedule).validate_python(table)


def test_a_schedule_that_goes_below_zero_is_refused_where_that_makes_no_sense() -> None:
    adapter = TypeAdapter(NotNegative)
    assert adapter.validate_python(0) == Constant(value=0.0)
    for table in (
        -1.0,
        {"kind": "linear", "start": 1.0, "end": -0.5, "num_steps": 3},
        {"kind": "cosine", "start": -0.5, "end": 1.0, "num_steps": 3},
    ):
        with pytest.raises(ValidationError, match="must not be negative"):
            adapter.validate_python(table)
