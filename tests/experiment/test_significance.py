"""Chances and numbers of seeds, against tables and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from groupwise.experiment.significance import holm, p_value, seeds_needed
from groupwise.experiment.spread import Spread


def test_the_chance_is_that_of_a_paired_t_test():
    differences = np.array([0.03, 0.05, -0.01, 0.02, 0.06])
    spread = Spread(float(differences.var(ddof=1)) / 5, 0.0, 5, 1)
    assert p_value(float(differences.mean()), spread) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    assert p_value(0.0, Spread(0.0, 0.0, 3, 1)) == 1.0


def test_holm_on_four_chances_by_hand():
    # Sorted .005, .011, .02, .04: times 4, 3, 2, 1, never falling.
    assert holm({"d": 0.04, "a": 0.005, "c": 0.02, "b": 0.011}) == pytest.approx(
        {"a": 0.02, "b": 0.033, "c": 0.04, "d": 0.04}
    )
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


def test_the_number_of_seeds_finds_the_difference_as_often_as_it_says():
    # Seeds with a deviation of 1.5 times the difference.
    number = seeds_needed(0.1, Spread(0.15**2 / 5, 0.0, 5, 100))
    assert number is not None
    random = np.random.default_rng(0)

    def power(count: int) -> float:
        return float(np.mean(stats.ttest_1samp(random.normal(0.1, 0.15, (4000, count)), 0, axis=1).pvalue < 0.05))

    assert power(number) >= 0.79
    assert power(number - 2) < 0.8


def test_more_comparisons_need_more_seeds_and_shared_prompts_set_a_limit():
    spread = Spread(0.15**2 / 5, 0.0, 5, 100)
    single, among_twelve = seeds_needed(0.1, spread), seeds_needed(0.1, spread, num_comparisons=12)
    assert single is not None
    assert among_twelve is not None
    assert among_twelve > single
    assert seeds_needed(0.1, Spread(0.15**2 / 5, 0.05**2, 5, 100)) is None
    assert seeds_needed(0.0, spread) is None
    assert seeds_needed(0.1, Spread(0.0, 0.001, 1, 100)) is None
