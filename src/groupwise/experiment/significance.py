"""Significance of differences, corrected for several comparisons, and the number of seeds that a difference needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from groupwise.experiment.spread import Spread

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
    """Returns the number of seeds below which a table of that many comparisons calls no difference real, however large.

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
