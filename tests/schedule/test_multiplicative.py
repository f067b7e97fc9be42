"""A coefficient multiplied while a measurement is outside its bounds: source 004's rule."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from groupwise.schedule import Multiplicative


def test_up_above_down_below_and_still_between() -> None:
    schedule = Multiplicative(initial=0.1, lower=0.01, upper=0.1, maximum=0.2)
    # 0.1 * 1.5, 0.1 / 1.5, unchanged on and between the bounds; 0.15 * 1.5 = 0.225 stops at 0.2.
    assert [schedule.observe(0.1, measured) for measured in (0.2, 0.001, 0.05, 0.1, 0.01)] == pytest.approx(
        [0.15, 0.1 / 1.5, 0.1, 0.1, 0.1]
    )
    assert schedule.observe(0.15, 0.2) == 0.2
    assert schedule.observe(0.15, None) == 0.15
    assert (schedule.init(), schedule.at(3), schedule.at(3, 0.15)) == (0.1, 0.1, 0.15)


@pytest.mark.parametrize("keys", [{"lower": 0.2, "upper": 0.1}, {"lower": 0.0, "upper": 0.1, "maximum": 0.05}])
def test_bounds_are_ordered(keys: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="must"):
        Multiplicative(initial=0.1, **keys)
