"""The same value at every step."""

from __future__ import annotations

from groupwise.schedule import Constant


def test_constant() -> None:
    schedule = Constant(value=0.3)
    assert [schedule.at(step) for step in (0, 7, 10**9)] == [0.3] * 3
    assert schedule.init() is None
    assert schedule.observe(None, 5.0) is None
    assert schedule.may_be_positive()
    assert not Constant(value=0.0).may_be_positive()
