"""Bootstrap over seeds and prompts: exact where it can be, and covering what it claims."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise.experiment.statistics import bootstrap, paired_difference


def test_equal_seeds_leave_only_the_spread_over_prompts():
    # 4 prompts, 2 solved: the redrawn mean is Binomial(4, 1/2) / 4, whose 2.5 % and 97.5 % quantiles are 0 and 1.
    estimate = bootstrap({seed: {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0} for seed in range(3)})
    assert (estimate.mean, estimate.low, estimate.high) == pytest.approx((0.5, 0.0, 1.0))


def test_equal_prompts_leave_only_the_spread_over_seeds():
    # Two seeds at 0 and 1: the redrawn mean is 0, 1/2, 1 with 1/4, 1/2, 1/4.
    estimate = bootstrap({0: dict.fromkeys("abcd", 0.0), 1: dict.fromkeys("abcd", 1.0)})
    assert (estimate.mean, estimate.low, estimate.high) == pytest.approx((0.5, 0.0, 1.0))
    assert bootstrap({0: dict.fromkeys("abcd", 0.0), 1: dict.fromkeys("abcd", 1.0)}, level=0.4).low == pytest.approx(0.5)


def test_the_interval_has_the_width_of_the_normal_approximation():
    random = np.random.default_rng(1)
    scores = {0: {str(index): float(value) for index, value in enumerate(random.normal(size=400))}}
    values = np.array(list(scores[0].values()))
    estimate = bootstrap(scores)
    width = 1.96 * values.std() / 20
    assert estimate.low == pytest.approx(values.mean() - width, rel=0, abs=0.15 * width)
    assert estimate.high == pytest.approx(values.mean() + width, rel=0, abs=0.15 * width)


def test_shared_prompts_are_drawn_together_and_other_prompts_apart():
    # The same hard prompts in every seed: averaging over 8 seeds must not shrink the interval. Prompts of their own: it must.
    shared = {seed: {str(index): float(index % 2) for index in range(50)} for seed in range(8)}
    apart = {seed: {f"{seed}-{index}": float(index % 2) for index in range(50)} for seed in range(8)}
    wide, narrow = bootstrap(shared), bootstrap(apart)
    assert wide.mean == narrow.mean == 0.5
    assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(8**0.5, rel=0.2)


def test_what_two_variants_share_cancels():
    random = np.random.default_rng(2)
    hard = {str(index): float(value) for index, value in enumerate(random.normal(size=100))}
    first = {seed: {key: value + 0.1 for key, value in hard.items()} for seed in range(3)}
    second = dict.fromkeys(range(3), hard)
    difference = paired_difference(first, second)
    assert difference.mean == pytest.approx(0.1)
    assert difference.high - difference.low < 1e-9
    assert difference.excludes_zero
    assert not bootstrap(first).excludes_zero


def test_the_same_draws_every_time():
    scores = {0: {"a": 0.1, "b": 0.7, "c": 0.2}, 1: {"a": 0.9, "b": 0.3, "c": 0.4}}
    assert bootstrap(scores) == bootstrap(scores)
    assert bootstrap(scores, seed=1).mean == bootstrap(scores).mean


def test_nothing_to_compare_is_an_error():
    with pytest.raises(ValueError, match="at least one prompt"):
        bootstrap({0: {}})
    with pytest.raises(ValueError, match="same seeds"):
        paired_difference({0: {"a": 1.0}}, {1: {"a": 1.0}})
