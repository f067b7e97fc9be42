"""Decimals of numbers that are read beside each other."""

from __future__ import annotations

import math

import pytest

from groupwise.track.tracker import same_decimals


@pytest.mark.parametrize(
    ("values", "printed"),
    [
        ([27.803, 27.905], ["27.80", "27.91"]),
        # The gain is what is read: it keeps two digits however small it is beside the numbers.
        ([27.8030, 27.8151], ["27.803", "27.815"]),
        ([0.25, 0.75, 0.5], ["0.250", "0.750", "0.500"]),
        ([0.246, 1.0], ["0.246", "1.000"]),
        ([-0.003534, -0.003495], ["-0.003534", "-0.003495"]),
        ([1520.0, 10.0], ["1520", "10"]),
        ([0.5, 0.5], ["0.500", "0.500"]),
        ([0.0, 0.0], ["0.00", "0.00"]),
        ([None, 0.5], ["-", "0.500"]),
        ([None], ["-"]),
        ([], []),
    ],
)
def test_as_many_decimals_as_tell_them_apart(values: list[float | None], printed: list[str]) -> None:
    assert same_decimals(values) == printed


def test_nan_is_printed_and_does_not_set_the_decimals() -> None:
    assert same_decimals([math.nan, math.inf, 0.5]) == ["nan", "inf", "0.500"]


def test_noise_in_the_last_bits_is_not_told_apart() -> None:
    assert same_decimals([27.8, 27.8 + 4e-15]) == ["27.8", "27.8"]
