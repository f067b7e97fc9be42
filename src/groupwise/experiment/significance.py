"""Significance of differences, corrected for several comparisons, and the number of seeds that a difference needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from groupwise.experiment.spread import Spread

LEVEL = 0.05
"""The probability, over all comparisons of a table, that some difference between equal variants is called real."""

POWER = 0.8
"""The probability with which a real difference should be detected."""

MOST_SEEDS = 1000

Key = TypeVar("Key")


def p_value(mean: float, spread: Spread) -> float | None:
    """Returns the two-sided p-value of a mean under the hypothesis that the true mean is 0: `t = |mean| / se` with the
    spread's degrees of freedom.

    Args:
        mean: the mean difference.
        spread: the spread of the mean difference.

    Returns:
        the probability; None with one seed, since the variance between seeds is not known then.

    Example:
        >>> round(p_value(0.1, Spread(0.0004, 0.0, 5, 100)), 4)
        0.0075
        >>> p_value(0.1, Spread(0.0, 0.0004, 1, 100)) is None
        True
    """
    from scipy import stats

    if spread.num_seeds < 2:
        return None
    if spread.standard_error == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stats.t.sf(abs(mean) / spread.standard_error, spread.degrees))


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

    The result is the smallest `S` with `|mean| >= (t_{1 - a/2} + t_{power}) se(S)`, where `a = LEVEL / num_comparisons`
    and `t` are quantiles at the degrees of freedom that `S` seeds give.

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
        quantiles: Sequence[float] = stats.t.ppf([1 - LEVEL / num_comparisons / 2, power], enlarged.degrees).tolist()
        return abs(mean) >= sum(quantiles) * enlarged.standard_error

    if not enough(MOST_SEEDS):
        return None
    low, high = 1, MOST_SEEDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
