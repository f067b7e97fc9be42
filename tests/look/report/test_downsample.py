from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise_look.report.axes import downsample_curve, downsample_quantiles, round_significant


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), st.integers(1, 20))
def test_no_extreme_is_lost_and_the_mean_is_the_mean(values: list[float], most_points: int) -> None:
    curve = downsample_curve([(list(range(len(values))), values)], most_points)
    assert curve is not None
    assert len(curve["step"]) == min(most_points, len(values))
    assert min(curve.get("low", curve["mean"])) == pytest.approx(min(values), rel=1e-4)
    assert max(curve.get("high", curve["mean"])) == pytest.approx(max(values), rel=1e-4)
    assert curve["step"] == sorted(curve["step"])


def test_a_spike_survives_thinning_to_a_few_points() -> None:
    values = [1.0] * 5000
    values[1233] = 1000.0
    curve = downsample_curve([(list(range(1, 5001)), values)], 300)
    assert len(curve["step"]) == 300
    place = curve["high"].index(1000)
    assert curve["step"][place] == pytest.approx(1234, abs=10)
    assert sum(high == 1000 for high in curve["high"]) == 1


def test_seeds_have_their_spread_and_a_short_one_counts_as_far_as_it_goes() -> None:
    curve = downsample_curve([([1, 2, 3], [1.0, 2.0, 3.0]), ([1, 3], [3.0, 5.0]), ([1], [8.0])])
    assert curve == {
        "step": [1, 2, 3],
        "mean": [4, 2, 4],
        "num_runs": [3, 1, 2],
        "run_low": [1, 2, 3],
        "run_high": [8, 2, 5],
    }


def test_of_a_shared_point_each_seed_gives_its_mean() -> None:
    curve = downsample_curve([([1, 2, 3, 4], [0.0, 2.0, 4.0, 4.0]), ([1, 2, 3, 4], [3.0, 3.0, 0.0, 8.0])], 2)
    assert curve == {
        "step": [1.5, 3.5],
        "mean": [2, 4],
        "num_runs": [2, 2],
        "run_low": [1, 4],
        "run_high": [3, 4],
        "low": [0, 0],
        "high": [3, 8],
    }


def test_no_values_give_no_curve_and_an_overflowing_sum_gives_a_gap() -> None:
    assert downsample_curve([]) is None
    assert downsample_curve([([], [])]) is None
    assert downsample_curve([([1, 2], [1.7e308, 1.7e308])], 1)["mean"] == [None]


def test_quantiles_are_of_all_values_that_share_a_point() -> None:
    quantile_curves = downsample_quantiles(
        {1: np.array([0.0]), 2: np.array([10.0, 20.0]), 3: np.array([]), 4: np.array([5.0])}, [0.0, 0.5, 1.0], 2
    )
    assert quantile_curves == {"step": [1, 3], "quantiles": [[0, 5], [0, 10], [0, 20]]} or quantile_curves == {
        "step": [1.5, 4],
        "quantiles": [[0, 5], [10, 5], [20, 5]],
    }
    assert downsample_quantiles({1: np.array([])}, [0.5]) is None


def test_numbers_keep_the_digits_that_count() -> None:
    assert [round_significant(value) for value in (123456.7, 1e-9, -0.0, 1e300, float("inf"))] == [
        123460,
        1e-09,
        0,
        1e300,
        None,
    ]
