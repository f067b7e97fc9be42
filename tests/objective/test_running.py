"""Bias-corrected exponential averages of batch statistics."""

from __future__ import annotations

import pytest

from groupwise.objective.running import Running


def test_the_first_batch_is_exact_and_later_ones_fade_it() -> None:
    first = Running().follow(mean=2.0, std=4.0, decay=0.5)
    assert (first.mean, first.std) == (2.0, 4.0)
    # (0.25 * 2 + 0.5 * 5) / 0.75 = 4
    assert first.follow(mean=5.0, std=4.0, decay=0.5).mean == pytest.approx(4.0)
    assert (Running().mean, Running().std) == (0.0, 0.0)
