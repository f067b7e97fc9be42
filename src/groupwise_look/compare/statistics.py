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

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np

from groupwise.runs import Run, read_lines, read_run

# The uncertainty of a mean over seeds and prompts, split into the contributions of both.


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


# Significance of differences, corrected for several comparisons, and the number of seeds that a difference needs.

LEVEL = 0.05
"""The probability, over all comparisons of a table, that some difference between equal variants is called real."""

POWER = 0.8
"""The probability with which a real difference should be detected."""

MOST_SEEDS = 1000

_MOST_ENUMERATED = 14
_DRAWN_SIGNS = 2**14

Key = TypeVar("Key")


def p_value(mean: float, spread: Spread) -> float | None:
    """Returns the two-sided p-value of a mean under the hypothesis that the true mean is 0: that of a t test, and at
    least `sign_flips` of the seeds' differences.

    With `t = |mean| / se` and the parts `v_i` of the variance, of seeds and of prompts, the t test gives `sum_i v_i
    p_i(t) / sum_i v_i`, where `p_i` has the degrees of freedom of its part. Satterthwaite's single number of degrees
    would call up to 7 % of equal variants different where both parts matter and there are three seeds.

    The t test alone fails where runs find a trick or do not: the differences of a few seeds then coincide by chance,
    and a variance near 0 makes any difference look certain.

    Args:
        mean: the mean difference.
        spread: the spread of the mean difference; where it lacks `by_seed`, the value is at least `all_alike`.

    Returns:
        the probability; None with one seed, since the variance between seeds is not known then.

    Example:
        >>> round(p_value(0.1, Spread(0.0004, 0.0, 5, 100)), 4)
        0.0075
        >>> p_value(0.1, Spread(0.0, 0.0, 3, 100))
        0.03125
        >>> p_value(0.1, Spread(0.0, 0.0004, 1, 100)) is None
        True
    """
    from scipy import stats

    if spread.num_seeds < 2:
        return None
    if spread.standard_error == 0:
        chance = 1.0 if mean == 0 else 0.0
    else:
        parts = [(spread.seeds, spread.num_seeds - 1), (spread.prompts, spread.num_prompts - 1)]
        distance = abs(mean) / spread.standard_error
        tails = [variance * 2 * float(stats.t.sf(distance, degrees)) for variance, degrees in parts if variance > 0]
        chance = sum(tails) / (spread.seeds + spread.prompts)
    by_seed = np.asarray(spread.by_seed)
    return max(chance, float(sign_flips(by_seed)) if by_seed.size else all_alike(spread.num_seeds))


def all_alike(num_seeds: int) -> float:
    """Returns the probability with which two equal variants differ by the same amount, and not by 0, in every seed, at
    most: `2 / 4^S`.

    It is reached where half of all runs find a trick: one pair then differs in favour of a given variant with
    probability 1/4.

    Example:
        >>> all_alike(3)
        0.03125
    """
    return 2 * 4.0**-num_seeds


def sign_flips(by_seed: np.ndarray) -> np.ndarray:
    """Computes the p-value of exchanging the two runs of a pair, for any distribution of the differences.

    Between equal variants each seed's difference could as well have the other sign. The value is the share of the `2^S`
    choices of signs, other than the measured one and its opposite, whose sum is as large as the measured one, plus
    `all_alike(S)` for these two.

    Args:
        by_seed: `[..., S]` differences; of more than 14 seeds the signs are drawn.

    Returns:
        `[...]` probabilities.

    Example:
        >>> sign_flips(np.array([[0.1, 0.3, 0.2], [0.4, 0.3, -0.1]])).tolist()
        [0.03125, 0.28125]
    """
    num_seeds = by_seed.shape[-1]
    if num_seeds <= _MOST_ENUMERATED:
        # One sign is fixed, since opposite choices give opposite sums.
        choices = np.array(np.meshgrid(*[[1.0]] + [[1.0, -1.0]] * (num_seeds - 1))).reshape(num_seeds, -1)
        measured = 1
    else:
        choices = np.random.default_rng(0).choice([1.0, -1.0], (num_seeds, _DRAWN_SIGNS))
        measured = 0
    bound = np.abs(by_seed.sum(-1, keepdims=True)) * (1 - 1e-9)
    others = (np.abs(by_seed @ choices) >= bound).sum(-1) - measured
    return np.minimum(others / choices.shape[1] + all_alike(num_seeds), 1.0)


def fewest_seeds(num_comparisons: int) -> int:
    """Returns the least number of seeds with which a table of this many comparisons can call any difference real.

    Example:
        >>> [fewest_seeds(number) for number in (1, 2, 6, 7, 25)]
        [3, 4, 4, 5, 5]
    """
    number = 2
    while num_comparisons * all_alike(number) >= LEVEL:
        number += 1
    return number


def holm(chances: Mapping[Key, float]) -> dict[Key, float]:
    """Corrects p-values for the number of comparisons: at most a share `LEVEL` of all tables of equal variants has a
    corrected p-value below `LEVEL`.

    `p'_(i) = max_{j <= i} min(1, (K - j + 1) p_(j))`, the smallest first.

    Args:
        chances: comparison -> p-value.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'c': 0.06, 'b': 0.06}

    Source: Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6 (1979).
    """
    corrected: dict[Key, float] = {}
    largest = 0.0
    for place, key in enumerate(sorted(chances, key=lambda key: chances[key])):
        largest = max(largest, min(1.0, (len(chances) - place) * chances[key]))
        corrected[key] = largest
    return corrected


def seeds_needed(mean: float, spread: Spread, *, num_comparisons: int = 1, power: float = POWER) -> int | None:
    """Returns the number of seeds that would detect a true difference of the measured size.

    The result is the smallest `S` whose p-value of `|mean| - t_{power} se(S)` is at most `LEVEL / num_comparisons`,
    where `t_{power}` is a quantile at the degrees of freedom that `S` seeds give.

    Args:
        mean: the measured difference.
        spread: the spread of the mean difference, from at least two seeds.
        num_comparisons: the number of comparisons among which `LEVEL` is shared.
        power: the probability with which the difference should be detected.

    Returns:
        the number; None where more than `MOST_SEEDS` would be needed, since the difference is close to 0 or the prompts
        are too few, and with one seed or a difference of 0.

    Example:
        Differences of .1 whose seeds have a standard deviation of .1: the two-sided t test needs ten, as tables of
        power say.

        >>> seeds_needed(0.1, Spread(0.01 / 5, 0.0, 5, 100))
        10
        >>> seeds_needed(0.1, Spread(0.0, 0.01, 5, 100)) is None
        True
    """
    from scipy import stats

    if spread.num_seeds < 2 or mean == 0:
        return None

    def enough(number: int) -> bool:
        enlarged = spread.at(number)
        margin = abs(mean) - float(stats.t.ppf(power, enlarged.degrees)) * enlarged.standard_error
        chance = p_value(margin, enlarged)
        return margin > 0 and chance is not None and chance <= LEVEL / num_comparisons

    if not enough(MOST_SEEDS):
        return None
    low, high = 1, MOST_SEEDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


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
        since the truth is within the bounds.

        Args:
            bounds: the lowest and the highest value; `None` changes nothing.

        Example:
            >>> wide = Estimate(0.98, 0.92, 1.04, Spread(seeds=0.0009, prompts=0.0, num_seeds=3, num_prompts=100))
            >>> wide.within((0.0, 1.0)).high
            1.0
        """
        if bounds is None:
            return self
        # The mean of scores that all are at a bound may differ from it by a rounding error.
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
    pairs = {common: (first[common], second[common]) for common in first if common in second}
    differences = {
        common: {key: score - right[key] for key, score in left.items() if key in right}
        for common, (left, right) in pairs.items()
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
    quantile, normal = stats.t.ppf((1 + level) / 2, spread.degrees), stats.norm.ppf((1 + level) / 2)
    stretch = spread.standard_error * quantile / (normal * deviation)
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


# Things that two runs of one seed have in common: only these cancel in the difference of the runs.

DATA, START, SAMPLES = "evaluation prompts", "weights at the start", "first samples"
"""Things that two runs may have in common: the evaluation prompts; the scores on them before the first policy step,
hence the weights; and the members of the first step that samples, where both drew the same random numbers.
"""

_SAME = ("key", "mode", "sample", "prompt", "text", "rewards")


def shared(first_folder: Path, second_folder: Path) -> tuple[str, ...]:
    """Returns the things that two runs have in common according to their folders.

    Returns:
        those of `evaluation prompts`, `weights at the start` and `first samples` that are equal in both runs; things
        that a folder does not record are left out.

    Example:
        >>> shared(Path("nowhere"), Path("nowhere"))
        ()
    """
    if not (first_folder.is_dir() and second_folder.is_dir()):
        return ()
    runs = read_run(first_folder), read_run(second_folder)
    evaluations = [_records(run, run.evaluations.get(_first_sampled(run) - 1)) for run in runs]
    common = []
    if all(evaluations) and [record.get("key") for record in evaluations[0]] == [
        record.get("key") for record in evaluations[1]
    ]:
        common.append(DATA)
        if evaluations[0] == evaluations[1]:
            common.append(START)
    members = [_records(run, run.rollouts.get(_first_sampled(run))) for run in runs]
    if all(members) and _common(*members):
        common.append(SAMPLES)
    return tuple(common)


def _first_sampled(run: Run) -> int:
    """Returns the first step that sampled members, whose rollouts are written at any interval."""
    return next(iter(run.rollouts), 0)


def _records(run: Run, path: Path | None) -> list[Mapping[str, Any]]:
    """Returns the comparable records of a file of members, none where there is no file."""
    return [] if path is None else [_comparable(run, record) for record in read_lines(path).rows]


def _comparable(run: Run, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the comparable entries of a member's record. A picture is replaced by the hash of its content, since two
    different images may have equal rewards.
    """
    pictures = {name: value for name, value in record.items() if isinstance(value, str) and value.endswith(".png")}
    picture_hashes = {name: _content(run.path / value) for name, value in pictures.items()}
    return {name: record[name] for name in _SAME if name in record and name not in picture_hashes} | picture_hashes


def _content(path: Path) -> str:
    """Returns the hash of a file's bytes, empty where there is no file."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _common(first_members: list[Mapping[str, Any]], second_members: list[Mapping[str, Any]]) -> bool:
    """Returns whether the members of common prompts are equal. Groups may differ in size, and one of the runs may have
    drawn further groups.
    """
    sides: list[dict[str, list[Mapping[str, Any]]]] = [{}, {}]
    for groups, members in zip(sides, (first_members, second_members), strict=True):
        for member in members:
            groups.setdefault(str(member.get("prompt", member.get("key"))), []).append(member)
    common = sides[0].keys() & sides[1].keys()
    pairs = (pair for key in common for pair in zip(sides[0][key], sides[1][key], strict=False))
    return bool(common) and all(first == second for first, second in pairs)
