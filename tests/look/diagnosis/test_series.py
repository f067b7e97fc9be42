"""Means, their errors, and what lies above what."""

from __future__ import annotations

import math

from groupwise_look.diagnosis import Series


def series(*values: float) -> Series:
    return Series("reward", list(range(1, len(values) + 1)), list(values))


def test_mean_and_error_by_hand() -> None:
    # Values 1, 2, 3: mean 2, variance 1, error of the mean sqrt(1/3).
    assert series(1, 2, 3).mean == 2
    assert math.isclose(series(1, 2, 3).error, math.sqrt(1 / 3))
    assert math.isnan(series().mean)
    assert series(5).error == 0


def test_above_needs_more_than_two_errors_of_the_difference() -> None:
    low = series(0, 0.2)  # mean .1, error .1
    # The difference's error is hypot(.1, .1) = .1414: two of them are .2828.
    assert not low.above(series(-0.27, -0.07))  # .1 above -.17: .27
    assert low.above(series(-0.29, -0.09))  # .1 above -.19: .29
    assert not series(1, 1).above(series(1, 1))


def test_numbers_that_diverged_raise_nothing() -> None:
    huge = Series("grad_norm", [1, 2, 3], [1e308, -1e308, 1.7e308])
    assert math.isfinite(huge.mean)
    assert huge.error > 1e307
    assert not huge.above(huge)
