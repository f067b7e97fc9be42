from __future__ import annotations

import pytest

from groupwise.domain.language.environment import calculate


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", "14"),
        ("-(2 - 5) ** 2", "-9"),
        ("0.1 + 0.2", "0.3"),
        ("7 / 2", "3.5"),
        ("2 / 3", "0.666667"),
        ("7 // 2", "3"),
        ("7 % 4", "3"),
        ("2 ^ 10", "1024"),
        ("10 ** -2", "0.01"),
        ("1 / 0", "error: division by zero"),
        ("7 // 0", "error: division by zero"),
        ("2 +", "error: no expression"),
        ("", "error: no expression"),
        ("0 ** -1", "error: division by zero"),
        ("__import__('os')", "error: only numbers, + - * / // % ** and brackets"),
        ("True + 1", "error: only numbers, + - * / // % ** and brackets"),
        ("9 ** 9 ** 9", "error: exponents are whole numbers, and results at most 60 digits"),
        ("2 ** 0.5", "error: exponents are whole numbers, and results at most 60 digits"),
        ("(" * 90 + "1" + ")" * 90, "1"),
        ("1" * 201, "error: longer than 200 characters"),
    ],
)
def test_values_and_refusals(expression, value):
    assert calculate(expression) == value
