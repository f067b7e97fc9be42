"""Bootstrap over seeds and prompts: exact where it can be, and covering what it claims."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.coverage import KINDS, coverage
from scipy import stats

from groupwise_look.compare.statistics import bootstrap, paired_difference


def test_equal_seeds_leave_only_the_spread_over_prompts():
    # Scores that do not depend on the seed: MS_s and MS_e are 0, MS_p / SP = var(prompts) / P, with P - 1 degrees of
    # freedom.
    scores = {str(index): float(index % 2) for index in range(64)}
    estimate = bootstrap(dict.fromkeys(range(3), scores))
    half = stats.t.ppf(0.975, 63) * (0.25 * 64 / 63 / 64) ** 0.5
    assert (estimate.low, estimate.high) == pytest.approx((0.5 - half, 0.5 + half), rel=0.03)


def test_equal_prompts_leave_only_the_spread_over_seeds():
    # Three seeds at 0, 1, 2: a t interval of 2 degrees of freedom, 1 +- 4.303 / sqrt 3, as far as three values have its
    # shape.
    estimate = bootstrap({seed: dict.fromkeys("abcd", float(seed)) for seed in range(3)})
    assert estimate.mean == 1.0
    assert (estimate.high - estimate.low) / 2 == pytest.approx(4.303 / 3**0.5, rel=0.15)
    assert estimate.spread.degrees == pytest.approx(2)
    wide = bootstrap({0: dict.fromkeys("abcd", 0.0), 1: dict.fromkeys("abcd", 1.0)})
    assert wide.high - wide.low > 8


def test_the_interval_has_the_width_of_the_normal_approximation():
    random = np.random.default_rng(1)
    scores = {0: {str(index): float(value) for index, value in enumerate(random.normal(size=400))}}
    values = np.array(list(scores[0].values()))
    estimate = bootstrap(scores)
    width = 1.96 * values.std() / 20
    assert estimate.low == pytest.approx(values.mean() - width, rel=0, abs=0.15 * width)
    assert estimate.high == pytest.approx(values.mean() + width, rel=0, abs=0.15 * width)


def test_the_resamples_give_the_interval_its_shape():
    # One seed far above the others: redrawn means reach further up than down.
    estimate = bootstrap(
        {seed: dict.fromkeys("abcd", value) for seed, value in enumerate([0.0, 0.01, 0.02, 0.01, 1.0, 0.0, 0.02, 0.01])}
    )
    assert estimate.high - estimate.mean > 1.2 * (estimate.mean - estimate.low)


def test_shared_prompts_are_drawn_together_and_other_prompts_apart():
    # The same hard prompts in every seed: averaging over 8 seeds must not shrink the interval. Prompts of their own: it
    # must.
    shared = {seed: {str(index): float(index % 2) for index in range(50)} for seed in range(8)}
    apart = {seed: {f"{seed}-{index}": float(index % 2) for index in range(50)} for seed in range(8)}
    wide, narrow = bootstrap(shared), bootstrap(apart)
    assert wide.mean == narrow.mean == 0.5
    assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(
        8**0.5 * stats.t.ppf(0.975, 49) / stats.t.ppf(0.975, 7), rel=0.1
    )


def test_what_two_variants_share_cancels():
    random = np.random.default_rng(2)
    hard = {str(index): float(value) for index, value in enumerate(random.normal(size=100))}
    better = {seed: {key: value + 0.1 for key, value in hard.items()} for seed in range(3)}
    plain = dict.fromkeys(range(3), hard)
    difference = paired_difference(better, plain)
    assert difference.mean == pytest.approx(0.1)
    assert difference.high - difference.low < 1e-9
    assert difference.low > 0
    assert bootstrap(better).low < 0


def test_the_same_draws_every_time():
    scores = {0: {"a": 0.1, "b": 0.7, "c": 0.2}, 1: {"a": 0.9, "b": 0.3, "c": 0.4}}
    assert bootstrap(scores) == bootstrap(scores)
    assert bootstrap(scores, seed=1).mean == bootstrap(scores).mean


def test_nothing_to_compare_is_an_error():
    with pytest.raises(ValueError, match="at least one prompt"):
        bootstrap({0: {}})
    with pytest.raises(ValueError, match="same seeds"):
        paired_difference({0: {"a": 1.0}}, {1: {"a": 1.0}})


@pytest.mark.parametrize(
    "num_seeds",
    [pytest.param(5, marks=pytest.mark.slow), *(pytest.param(num, marks=pytest.mark.nightly) for num in (3, 10))],
)
def test_the_interval_holds_the_truth_as_often_as_it_says(num_seeds: int):
    for kind in KINDS:
        calibrated, _ = coverage(kind, num_seeds, num_prompts=128, num_tables=400)
        # Four hundred tables tell a share of .95 to +- .02; noise alone is covered more often than it must.
        assert calibrated >= 0.92, kind
        assert calibrated <= (1.0 if kind == "noise of single scores" else 0.98), kind


@pytest.mark.slow
def test_plain_percentiles_are_too_narrow_where_ours_are_not():
    # With many prompts the seeds are what is uncertain, and resamples of three have two thirds of their variance: 2
    # Phi(1.96 sqrt(2/3)) - 1 = .89 were it known, and less where it is estimated. With few prompts the noise of single
    # scores, counted twice, hides it.
    calibrated, plain = coverage("seeds differ", 3, num_prompts=512, num_tables=250)
    # Two hundred and fifty tables tell a share to +- .03.
    assert calibrated >= 0.91
    assert plain < 0.89
