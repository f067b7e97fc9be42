from __future__ import annotations

import enum
from typing import Literal

import pytest

from groupwise.config import ConfigError
from groupwise.domain.language.tools import ToolSignature


class Unit(enum.Enum):
    METRE = "m"
    FOOT = "ft"


def measure(
    length: float,
    unit: Unit,
    axes: tuple[int, int] = (0, 1),
    mode: Literal["up", "down"] = "up",
    note: str | None = None,
):
    """Measures a length.

    Args:
        length: of the thing.
        unit: of the length.
        axes: to measure along.
        mode: of rounding.
        note: for people.
    """
    return length, unit, axes, mode, note


def test_the_schema_is_that_of_transformers():
    signature = ToolSignature(measure, "tools")
    assert signature.schema["function"]["parameters"]["required"] == ["length", "unit"]
    assert signature.schema["function"]["parameters"]["properties"]["unit"]["enum"] == ["m", "ft"]


def test_arguments_become_what_the_type_hints_say():
    read = ToolSignature(measure, "tools").read
    assert read({"length": 2, "unit": "ft", "axes": [1, 2]}) == ({"length": 2.0, "unit": Unit.FOOT, "axes": (1, 2)}, "")
    assert read({"length": 2.5, "unit": "m", "note": None, "mode": "down"})[1] == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"length": "2", "unit": "m"}, "length: Input should be a valid number"),
        ({"length": 2, "unit": "mile"}, "unit: Input should be 'm' or 'ft'"),
        ({"length": 2, "unit": "m", "mode": "off"}, "mode: Input should be 'up' or 'down'"),
        ({"length": 2, "unit": "m", "axes": [1.5, 2]}, "axes: Input should be a valid integer"),
        ({"length": 2}, "measure needs the argument unit"),
        ({"length": 2, "unit": "m", "self": 1}, "measure has no argument self; it has length, unit, axes, mode, note"),
    ],
)
def test_a_wrong_argument_is_named(arguments, problem):
    values, reason = ToolSignature(measure, "tools").read(arguments)
    assert values == {}
    assert reason.startswith(problem)


def undocumented(a: int):
    return a


def without_hint(a):
    """Does.

    Args:
        a: of it.
    """


def any_number(*numbers: int, **more: int):
    """Does.

    Args:
        numbers: some.
        more: others.
    """


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (undocumented, "no docstring!; write a docstring, and for every parameter a type hint"),
        (without_hint, "Argument a is missing a type hint"),
        (any_number, r"a call gives arguments by name, and \*numbers: .*, \*\*more: .* cannot be named"),
        (min, "cannot be described as a tool"),
    ],
)
def test_a_function_that_cannot_be_described_is_refused(function, reason):
    with pytest.raises(ConfigError, match=rf"tools\[0\] = 'm:f': .*{reason}"):
        ToolSignature(function, "tools[0] = 'm:f'")
