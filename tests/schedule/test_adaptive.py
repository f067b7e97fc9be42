"""A coefficient that steers a measurement towards a target."""

from __future__ import annotations

import pytest

from groupwise.schedule import Adaptive


def test_moves_with_the_error_within_a_fifth() -> None:
    schedule = Adaptive(initial=0.1, target=0.05, horizon=10)
    assert schedule.init() == 0.1
    # Errors +10 %, beyond +20 %, beyond -20 %, none: value (1 + error / 10).
    assert [schedule.observe(0.1, measured) for measured in (0.055, 5.0, 0.0, 0.05)] == pytest.approx(
        [0.101, 0.102, 0.098, 0.1]
    )


def test_nothing_measured_moves_nothing() -> None:
    schedule = Adaptive(initial=0.1, target=0.05)
    assert schedule.observe(0.3, None) == 0.3
    assert (schedule.at(9), schedule.at(9, 0.3)) == (0.1, 0.3)
