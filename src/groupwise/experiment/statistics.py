"""Means with intervals, and paired differences, by a bootstrap over seeds and then prompts.

A run gives one score for each evaluation prompt; a variant is run with several seeds. The bootstrap redraws both:
seeds, because another seed would have trained another model, and prompts, because other prompts would have served as
well. A difference between two variants is taken prompt by prompt between runs of the same seed *before* the bootstrap,
so that the influence of the seed and of the prompts cancels.

Redrawing three or five seeds gives too narrow an interval, and redrawing both seeds and prompts counts the noise of
single scores more than once. So the resamples give the interval its shape, and the variance of the table with its
degrees of freedom gives it its size: the distances of the resamples from the mean are stretched by

    k = t_{(1 + level) / 2, degrees} se / (z_{(1 + level) / 2} sd(resamples))

`python benchmarks/coverage.py` prints how often such intervals hold the truth, and how often plain percentiles do. A
single seed cannot be redrawn: its interval covers the choice of prompts only, and no difference is called real on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from groupwise.experiment.significance import p_value
from groupwise.experiment.spread import Spread, crossed, nested

Scores = Mapping[int, Mapping[str, float]]
"""seed -> prompt key -> score"""


@final
@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and prompts with its interval.

    Args:
        mean: the mean over seeds of the means over prompts.
        low: lower end of the interval.
        high: upper end of the interval.
        spread: the variance of the mean, split into seeds and prompts.

    Example:
        >>> Estimate(0.2, 0.1, 0.3, Spread(seeds=0.0009, prompts=0.0, num_seeds=3, num_prompts=100)).num_seeds
        3
    """

    mean: float
    low: float
    high: float
    spread: Spread

    @property
    def num_seeds(self) -> int:
        """The number of seeds."""
        return self.spread.num_seeds

    @property
    def num_prompts(self) -> int:
        """The number of prompts of the seed that has the fewest."""
        return self.spread.num_prompts

    @property
    def is_zero(self) -> bool:
        """True where the mean and both ends are 0; a difference is then 0 on every prompt."""
        return self.mean == self.low == self.high == 0

    def within(self, bounds: tuple[float, float] | None) -> Estimate:
        """Returns the estimate with its interval cut at the bounds. The interval holds the truth as often as before,
        since the truth lies within the bounds.

        Args:
            bounds: the lowest and the highest value; `None` changes nothing.

        Example:
            >>> wide = Estimate(0.98, 0.92, 1.04, Spread(seeds=0.0009, prompts=0.0, num_seeds=3, num_prompts=100))
            >>> wide.within((0.0, 1.0)).high
            1.0
        """
        if bounds is None:
            return self
        # The mean of scores that all lie at a bound may differ from it by a rounding error.
        return replace(
            self, low=min(max(self.low, bounds[0]), self.mean), high=max(min(self.high, bounds[1]), self.mean)
        )

    @property
    def p_value(self) -> float | None:
        """The two-sided p-value of the mean under the hypothesis that it is 0; None with one seed."""
        return p_value(self.mean, self.spread)


def bootstrap(scores: Scores, *, level: float = 0.95, num_resamples: int = 4000, seed: int = 0) -> Estimate:
    """Estimates the mean of scores with an interval.

    Where every seed has the same prompts, one draw of prompts serves all seeds of a resample: a hard prompt is hard for
    every seed, and separate draws would hide that. Otherwise each drawn seed draws its own prompts.

    Args:
        scores: seed -> prompt key -> score.
        level: the probability with which the interval holds the truth.
        num_resamples: the number of resamples of seeds and prompts.
        seed: the seed of the resampling.

    Raises:
        ValueError: there is no seed, or a seed has no prompts.

    Example:
        >>> bootstrap({0: {"a": 1.0, "b": 0.0}, 1: {"a": 1.0, "b": 0.0}}).mean
        0.5
        >>> equal = bootstrap({0: {"a": 1.0}, 1: {"a": 1.0}})
        >>> equal.low, equal.high
        (1.0, 1.0)
    """
    if not scores or not all(scores.values()):
        raise ValueError("a bootstrap needs at least one seed with at least one prompt")
    random = np.random.default_rng(seed)
    rows = list(scores.values())
    keys = sorted(rows[0])
    mean = float(np.mean([np.mean(list(row.values())) for row in rows]))
    if all(set(row) == set(keys) for row in rows):
        table = np.array([[row[key] for key in keys] for row in rows])
        spread, draws = crossed(table), _crossed(table, num_resamples, random)
    else:
        lists = [np.array(list(row.values())) for row in rows]
        spread, draws = nested(lists), _nested(lists, num_resamples, random)
    low, high = _calibrated(draws - mean, spread, level)
    # A resample sums in another order, so an interval of equal scores may miss their mean by a rounding error.
    return Estimate(mean, min(mean + low, mean), max(mean + high, mean), spread)


def paired_difference(
    first: Scores, second: Scores, *, level: float = 0.95, num_resamples: int = 4000, seed: int = 0
) -> Estimate:
    """Estimates the mean of `first - second`, over the seeds and prompts that both have.

    Args:
        first, second: seed -> prompt key -> score.
        level: the probability with which the interval holds the truth.
        num_resamples: the number of resamples of seeds and prompts.
        seed: the seed of the resampling.

    Returns:
        the mean difference with its interval.

    Raises:
        ValueError: there is no common seed, or a common seed has no common prompt.

    Example:
        >>> difference = paired_difference({0: {"a": 1.0, "b": 0.5}}, {0: {"a": 0.5, "b": 0.0}, 1: {"a": 9.0}})
        >>> difference.mean, difference.low, difference.high, difference.num_seeds
        (0.5, 0.5, 0.5, 1)
    """
    differences = {
        seed_of_both: {
            key: score - second[seed_of_both][key]
            for key, score in first[seed_of_both].items()
            if key in second[seed_of_both]
        }
        for seed_of_both in first
        if seed_of_both in second
    }
    if not differences or not all(differences.values()):
        raise ValueError(
            "a paired difference needs runs of both variants with the same seeds and the same evaluation prompts"
        )
    return bootstrap(differences, level=level, num_resamples=num_resamples, seed=seed)


def _calibrated(distances: np.ndarray, spread: Spread, level: float) -> tuple[float, float]:
    """Returns the ends of the interval as distances from the mean."""
    from scipy import stats

    deviation = float(distances.std())
    if spread.standard_error == 0 or deviation == 0:
        return 0.0, 0.0
    stretch = (
        spread.standard_error
        * stats.t.ppf((1 + level) / 2, spread.degrees)
        / (stats.norm.ppf((1 + level) / 2) * deviation)
    )
    low, high = np.quantile(distances, [(1 - level) / 2, (1 + level) / 2]) * stretch
    return float(low), float(high)


def _crossed(table: np.ndarray, num_resamples: int, random: np.random.Generator) -> np.ndarray:
    """Computes `[R]` means of `[S, P]` scores, each with its own draw of rows and of columns."""
    num_seeds, num_prompts = table.shape
    seeds = random.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), size=num_resamples) / num_seeds
    prompts = random.multinomial(num_prompts, np.full(num_prompts, 1 / num_prompts), size=num_resamples) / num_prompts
    return ((seeds @ table) * prompts).sum(axis=1)


def _nested(rows: Sequence[np.ndarray], num_resamples: int, random: np.random.Generator) -> np.ndarray:
    """Computes `[R]` means of one array of scores a seed, each with its own draw of seeds and, inside every drawn seed,
    of prompts.
    """
    total = np.zeros(num_resamples)
    for _ in rows:
        drawn = random.integers(len(rows), size=num_resamples)
        for index, row in enumerate(rows):
            resamples = np.flatnonzero(drawn == index)
            total[resamples] += (
                random.multinomial(len(row), np.full(len(row), 1 / len(row)), size=len(resamples)) @ row / len(row)
            )
    return total / len(rows)
