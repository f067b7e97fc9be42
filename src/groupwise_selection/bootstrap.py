"""Confidence intervals of means over queries that share images or rules: a bootstrap that redraws the shared
clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from groupwise.streams import Streams


def resampled_weights(clusters: Sequence[Mapping[str, str]], num_resamples: int, seed: int = 0) -> np.ndarray:
    """Draws how often each query counts in each resample, fp64 `[R, Q]`.

    For every name of a cluster (`image`, `rule`) its keys are redrawn with replacement, each name by itself; a query
    counts as often as the product of how often its keys were drawn. Queries without a cluster are redrawn themselves.

    Args:
        clusters: the clusters of each query, name -> key.
        num_resamples: `R`.
        seed: seed of the draws.

    Example:
        >>> weights = resampled_weights([{"rule": "a"}, {"rule": "a"}, {"rule": "b"}], 4)
        >>> bool((weights[:, 0] == weights[:, 1]).all()), weights.shape
        (True, (4, 3))

    Source: the pigeonhole bootstrap, Owen 2007, arXiv 0712.1111.
    """
    random = Streams(seed).numpy("bootstrap")
    names = sorted({name for query_clusters in clusters for name in query_clusters})
    keys = [
        [query_clusters.get(name, f"\x00{place}") for place, query_clusters in enumerate(clusters)] for name in names
    ] or [[str(place) for place in range(len(clusters))]]
    weights = np.ones((num_resamples, len(clusters)))
    for query_keys in keys:
        distinct_keys, place = np.unique(query_keys, return_inverse=True)
        weights *= random.multinomial(
            len(distinct_keys), np.full(len(distinct_keys), 1 / len(distinct_keys)), size=num_resamples
        )[:, place]
    return weights


def interval(values: np.ndarray, weights: np.ndarray, level: float = 0.95) -> tuple[float, float, float]:
    """Computes the mean of values with the ends of its percentile interval: `(mean, low, high)`.

    Args:
        values: fp64 `[Q]`.
        weights: `[R, Q]`, from `resampled_weights`.
        level: share of the resamples inside the interval, 0 to 1.

    Example:
        >>> interval(np.ones(3), np.ones((4, 3)))
        (1.0, 1.0, 1.0)
    """
    total = weights.sum(1)
    # With few clusters a resample may miss all of them, and then it has no mean.
    means = (weights @ values)[total > 0] / total[total > 0]
    low, high = np.quantile(means if means.size else [values.mean()], [(1 - level) / 2, (1 + level) / 2])
    return float(values.mean()), float(low), float(high)
