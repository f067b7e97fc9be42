"""Running quantiles by hand: the first batch, fading, the scale between them."""

from __future__ import annotations

import pytest

from groupwise_selection.reward.adaptive_weights import RunningQuantile, TimesTen


def test_before_anything_was_seen_the_source_s_range_stands_in() -> None:
    scale = RunningQuantile()
    for value in (0.0, 0.02, 0.1, 0.5):
        assert scale(value, {}) == pytest.approx(TimesTen()(value, {}))
    # The source leaves what is below its range negative.
    assert (scale(-0.3, {}), TimesTen()(-0.3, {})) == (0.0, -3.0)


def test_the_first_batch_gives_its_own_quantiles_and_later_ones_fade_in() -> None:
    scale = RunningQuantile(low=0.25, high=0.75, decay=0.9)
    # Of 0, 1, 2, 3, 4 the quartiles are 1 and 3.
    first = scale.follow({}, [4.0, 0.0, 3.0, 1.0, 2.0])
    assert scale.bounds(first) == pytest.approx((1.0, 3.0))
    # All quartiles of a constant batch are 5; weights 0.9 * 0.1 and 0.1 of 0.19.
    second = scale.follow(first, [5.0])
    assert scale.bounds(second) == pytest.approx(((0.09 * 1 + 0.1 * 5) / 0.19, (0.09 * 3 + 0.1 * 5) / 0.19))
    assert scale(2.0, first) == pytest.approx(0.5)
    assert (scale(9.0, first), scale(-9.0, first)) == (1.0, 0.0)


def test_equal_quantiles_tell_only_above_from_the_rest() -> None:
    memory = RunningQuantile().follow({}, [2.0, 2.0])
    assert [RunningQuantile()(value, memory) for value in (1.0, 2.0, 3.0)] == [0.0, 0.0, 1.0]


def test_low_must_be_below_high() -> None:
    with pytest.raises(ValueError, match=r"low = 0.9 must be below high = 0.5"):
        RunningQuantile(low=0.9, high=0.5)
