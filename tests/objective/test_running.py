"""Bias-corrected exponential averages of batch statistics."""

from __future__ import annotations

import pytest

from groupwise.objective.batch import Running


def test_the_first_batch_is_exact_and_later_ones_fade_it() -> None:
    after_one = Running().follow(mean=2.0, std=4.0, centred_std=1.0, decay=0.5)
    assert (after_one.mean, after_one.std, after_one.centred_std) == (2.0, 4.0, 1.0)
    # (0.25 * 2 + 0.5 * 5) / 0.75 = 4, (0.25 * 1 + 0.5 * 7) / 0.75 = 5
    after_two = after_one.follow(mean=5.0, std=4.0, centred_std=7.0, decay=0.5)
    assert (after_two.mean, after_two.std, after_two.centred_std) == pytest.approx((4.0, 4.0, 5.0))
    assert (Running().mean, Running().std, Running().centred_std) == (0.0, 0.0, 0.0)


def test_a_state_with_one_deviation_goes_on_with_it() -> None:
    """As checkpoints hold it that were written when only the deviation in use was followed."""
    old = Running.model_validate({"mean_sum": 0.5, "std_sum": 1.5, "weight": 0.75})
    assert (old.mean, old.std, old.centred_std) == pytest.approx((2 / 3, 2.0, 2.0))
    assert Running.model_validate({"std_sum": 1.5, "centred_std_sum": 0.0, "weight": 0.75}).centred_std == 0.0
