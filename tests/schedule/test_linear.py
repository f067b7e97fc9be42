"""A straight line that ends."""

from __future__ import annotations

from groupwise.schedule import Linear


def test_from_start_to_end_and_no_further() -> None:
    schedule = Linear(start=1.0, end=3.0, num_steps=4)
    assert [schedule.at(step) for step in (0, 1, 2, 4, 9)] == [1.0, 1.5, 2.0, 3.0, 3.0]
    assert Linear(start=0.0, end=0.1, num_steps=4).may_be_positive()
    assert not Linear(start=0.0, end=-1.0, num_steps=4).may_be_positive()
