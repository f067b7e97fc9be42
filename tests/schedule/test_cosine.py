"""Half a cosine that ends."""

from __future__ import annotations

import pytest

from groupwise.schedule import Cosine


def test_from_start_to_end_and_no_further() -> None:
    # (1 + cos(pi / 3)) / 2 = 3/4, (1 + cos(2 pi / 3)) / 2 = 1/4.
    schedule = Cosine(start=2.0, end=0.0, num_steps=3)
    assert [schedule.at(step) for step in (0, 1, 2, 3, 9)] == pytest.approx([2.0, 1.5, 0.5, 0.0, 0.0])
