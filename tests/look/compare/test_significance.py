"""Chances and numbers of seeds, against tables and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from groupwise_look.compare.statistics import (
    LEVEL,
    Spread,
    all_alike,
    crossed,
    fewest_seeds,
    holm,
    nested,
    p_value,
    seeds_needed,
    sign_flips,
)


def test_the_chance_is_that_of_a_paired_t_test():
    differences = np.array([0.03, 0.05, -0.01, 0.02, 0.06])
    spread = Spread(float(differences.var(ddof=1)) / 5, 0.0, 5, 1)
    assert p_value(float(differences.mean()), spread) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    assert p_value(0.0, Spread(0.0, 0.0, 3, 1)) == 1.0


def test_the_parts_of_a_variance_keep_their_own_degrees_of_freedom():
    # Two parts of equal size and t = 2: the mean of the tails with 2 and with 99 degrees of freedom.
    spread = Spread(0.5, 0.5, 3, 100)
    expected = stats.t.sf(2.0, 2) + stats.t.sf(2.0, 99)
    assert p_value(2.0, spread) == pytest.approx(expected)
    assert p_value(2.0, Spread(0.0, 1.0, 3, 100)) == pytest.approx(2 * stats.t.sf(2.0, 99))


def test_the_signs_of_four_seeds_by_hand():
    # 1, 2, 3, -4 sums to 2. With the first sign fixed, |1 +- 2 +- 3 +- 4| >= 2 for 1+2+3+4 = 10, 1+2+3-4 = 2 itself,
    # 1+2-3+4 = 4, 1+2-3-4 = -4, 1-2+3+4 = 6, 1-2+3-4 = -2, 1-2-3-4 = -8, and not for 1-2-3+4 = 0.
    assert sign_flips(np.array([1.0, 2.0, 3.0, -4.0])) == pytest.approx(6 / 8 + 2 / 4**4)
    assert sign_flips(np.array([3.0, 1.0, 0.5, 0.1])) == all_alike(4), "no other choice of signs is as large"


def test_signs_of_many_seeds_are_drawn():
    random = np.random.default_rng(0)
    differences = random.normal(0.3, 1.0, (6, 14))
    enumerated = sign_flips(differences)
    # A difference of 0 in a fifteenth seed doubles both counts.
    drawn = sign_flips(np.hstack([differences, np.zeros((6, 1))]))
    # Shares of 16,384 draws have a standard error of .004 at most.
    assert drawn == pytest.approx(enumerated, abs=0.016)


def test_seeds_that_coincide_by_chance_are_not_told_from_none():
    # Six variants whose runs find a trick or do not: every one differs from the first by .43 in all of three seeds.
    table = np.full((3, 16), 0.43) + 0.001 * np.random.default_rng(0).normal(size=(3, 16))
    chance = p_value(float(table.mean()), crossed(table))
    assert chance == all_alike(3) == 1 / 32
    assert p_value(float(table.mean()), nested(list(table))) == 1 / 32, "each seed with its own prompts"
    assert min(holm(dict.fromkeys("abcde", chance)).values()) > LEVEL
    assert min(holm(dict.fromkeys("a", chance)).values()) < LEVEL


@pytest.mark.parametrize("num_comparisons", [1, 2, 5, 12, 40])
def test_fewer_seeds_than_a_table_needs_call_nothing_and_enough_call_what_is_certain(num_comparisons: int):
    fewest = fewest_seeds(num_comparisons)
    for seeds, called in ((fewest - 1, False), (fewest, True)):
        chance = p_value(1.0, crossed(np.ones((seeds, 8))))
        assert chance is not None
        assert (holm(dict.fromkeys(range(num_comparisons), chance))[0] < LEVEL) == called
    assert seeds_needed(1.0, Spread(0.0, 0.0, 3, 8), num_comparisons=num_comparisons) == fewest


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
