"""The parts of a variance: by hand on small tables, and right on average on drawn ones."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise_look.compare.statistics import Spread, crossed, nested


def test_a_table_by_hand():
    # Rows 0 1 and 2 5: means 1/2 and 7/2, columns 1 and 3, grand mean 2. MS_s = 2 (2.25 + 2.25) = 9, MS_p = 2 (1 + 1) =
    # 4, MS_e = 4 (1/2)^2 = 1.
    spread = crossed(np.array([[0.0, 1.0], [2.0, 5.0]]))
    assert (spread.seeds, spread.prompts) == pytest.approx((9 / 4, 3 / 4))
    assert spread.standard_error == pytest.approx(3**0.5)
    assert spread.degrees == pytest.approx(9 / ((9 / 4) ** 2 + (3 / 4) ** 2))
    assert spread.at(4).seeds == pytest.approx(9 / 8)


def test_seeds_that_agree_by_chance_are_not_taken_for_certain():
    # Equal row means, with single scores that differ: MS_s = 0, MS_e = 1.
    spread = crossed(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert (spread.seeds, spread.prompts) == pytest.approx((1 / 4, 0.0))


def test_one_seed_has_only_prompts_and_one_prompt_only_seeds():
    assert crossed(np.array([[0.0, 1.0, 0.0, 1.0]])) == Spread(0.0, pytest.approx(1 / 12), 1, 4)
    assert crossed(np.array([[0.0], [1.0]])) == Spread(0.25, 0.0, 2, 1, (0.0, 1.0))


def test_on_average_it_is_the_variance_of_the_mean():
    random = np.random.default_rng(0)
    num_seeds, num_prompts, variances, means = 4, 30, [], []
    for _ in range(2000):
        table = (
            random.normal(0, 0.1, (num_seeds, 1))
            + random.normal(0, 0.4, (1, num_prompts))
            + random.normal(0, 0.5, (num_seeds, num_prompts))
        )
        variances.append(crossed(table).standard_error ** 2)
        means.append(table.mean())
    assert np.mean(variances) == pytest.approx(0.1**2 / 4 + 0.4**2 / 30 + 0.5**2 / 120, rel=0.1)
    assert np.var(means) == pytest.approx(np.mean(variances), rel=0.1)


def test_own_prompts_are_part_of_the_seeds():
    assert nested([np.array([0.0, 1.0]), np.array([1.0]), np.array([3.0, 3.0])]).seeds == pytest.approx(
        np.var([0.5, 1.0, 3.0], ddof=1) / 3
    )
    # Equal means: the noise of the scores, variances 1/2 over two prompts each, over two seeds.
    assert nested([np.array([0.0, 1.0]), np.array([1.0, 0.0])]).seeds == pytest.approx(1 / 4 / 2)
