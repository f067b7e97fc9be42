"""Intervals of means over clusters."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise_selection.evaluate import interval, resampled_weights


def test_queries_of_one_cluster_are_redrawn_together() -> None:
    clusters = [{"image": str(place % 3), "rule": str(place // 3)} for place in range(9)]
    weights = resampled_weights(clusters, 500).reshape(500, 3, 3)
    # Each weight is the number of draws of its rule times that of its image.
    rules, images = weights.sum(2) / 3, weights.sum(1) / 3
    np.testing.assert_allclose(weights, rules[:, :, None] * images[:, None, :])
    assert (rules.sum(1) == 3).all()


def test_clusters_widen_an_interval_and_no_cluster_gives_the_plain_bootstrap() -> None:
    random = np.random.default_rng(0)
    shared = random.standard_normal(20)
    values = np.repeat(shared, 20)
    own = resampled_weights([{} for _ in values], 2000)
    together = resampled_weights([{"rule": str(place // 20)} for place in range(len(values))], 2000)
    mean, low, high = interval(values, own)
    assert mean == pytest.approx(values.mean())
    assert high - low == pytest.approx(2 * 1.96 * values.std() / np.sqrt(400), rel=0.1)
    _, wide_low, wide_high = interval(values, together)
    assert wide_high - wide_low == pytest.approx(2 * 1.96 * shared.std() / np.sqrt(20), rel=0.15)
