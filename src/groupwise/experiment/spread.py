"""The uncertainty of a mean over seeds and prompts, split into the contributions of both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np


@final
@dataclass(frozen=True)
class Spread:
    """The variance of a mean, in two parts.

    `Var = seeds + prompts`. With `n` times the seeds the first term is divided by `n` and the second stays, since more
    seeds do not average away the choice of prompts that all seeds share.

    Args:
        seeds: the variance due to the draw of seeds; `s^2 / S` of the seeds' means.
        prompts: the variance due to the draw of evaluation prompts, which is common to all seeds.
        num_seeds: `S`.
        num_prompts: `P`, the prompts of one seed.
        by_seed: the mean over prompts of each seed, of the spreads that `crossed` and `nested` return.

    Example:
        >>> spread = Spread(seeds=0.0004, prompts=0.0, num_seeds=5, num_prompts=100)
        >>> spread.standard_error, spread.degrees, spread.at(20).seeds
        (0.02, 4.0, 0.0001)
    """

    seeds: float
    prompts: float
    num_seeds: int
    num_prompts: int
    by_seed: tuple[float, ...] = ()

    @property
    def standard_error(self) -> float:
        """The standard error of the mean."""
        return math.sqrt(self.seeds + self.prompts)

    @property
    def degrees(self) -> float:
        """The degrees of freedom of the variance by Satterthwaite's formula."""
        terms = [(self.seeds, self.num_seeds - 1), (self.prompts, self.num_prompts - 1)]
        denominator = sum(variance**2 / count for variance, count in terms if variance > 0)
        return (self.seeds + self.prompts) ** 2 / denominator if denominator else 1.0

    def at(self, num_seeds: int) -> Spread:
        """Returns the spread that another number of seeds would have.

        Args:
            num_seeds: at least 2.
        """
        return Spread(self.seeds * self.num_seeds / num_seeds, self.prompts, num_seeds, self.num_prompts)


def crossed(table: np.ndarray) -> Spread:
    """Computes the spread where every seed has the same prompts: `x_sp = mean + a_s + b_p + e_sp`.

    By the mean squares of a two-way table, `Var = max(MS_s, MS_e) / SP + max(MS_p - MS_e, 0) / SP`: the noise of single
    scores is in both mean squares and is counted once, and the seeds' term is never below the variance that the noise
    alone causes.

    Args:
        table: `[S, P]` scores.

    Returns:
        the spread; with one seed it covers the prompts only.

    Example:
        >>> crossed(np.array([[0.0, 0.0], [1.0, 1.0]])).seeds
        0.25
    """
    num_seeds, num_prompts = table.shape
    if num_seeds == 1:
        return Spread(0.0, float(table.var(ddof=1)) / num_prompts if num_prompts > 1 else 0.0, 1, num_prompts)
    mean, by_seed, by_prompt = table.mean(), table.mean(axis=1, keepdims=True), table.mean(axis=0, keepdims=True)
    means = tuple(by_seed[:, 0].tolist())
    seeds = num_prompts * float(((by_seed - mean) ** 2).sum()) / (num_seeds - 1)
    if num_prompts == 1:
        return Spread(seeds / num_seeds, 0.0, num_seeds, 1, means)
    prompts = num_seeds * float(((by_prompt - mean) ** 2).sum()) / (num_prompts - 1)
    noise = float(((table - by_seed - by_prompt + mean) ** 2).sum()) / ((num_seeds - 1) * (num_prompts - 1))
    size = num_seeds * num_prompts
    return Spread(max(seeds, noise) / size, max(prompts - noise, 0.0) / size, num_seeds, num_prompts, means)


def nested(rows: Sequence[np.ndarray]) -> Spread:
    """Computes the spread where every seed has prompts of its own, so that the draw of prompts is part of the variance
    between seeds: `Var = s^2 / S` of the seeds' means.

    As in `crossed`, it is never below the variance that the noise of single scores alone causes.

    Args:
        rows: one array of scores a seed.

    Example:
        >>> nested([np.array([1.0, 1.0]), np.array([2.0, 2.0, 2.0])]).seeds
        0.25
    """
    if len(rows) == 1:
        return crossed(rows[0][None, :])
    means = np.array([row.mean() for row in rows])
    noise = float(np.mean([row.var(ddof=1) / len(row) if len(row) > 1 else 0.0 for row in rows]))
    seeds = max(float(means.var(ddof=1)), noise) / len(rows)
    return Spread(seeds, 0.0, len(rows), min(map(len, rows)), tuple(means.tolist()))
