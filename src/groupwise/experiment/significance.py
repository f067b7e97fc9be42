"""Whether a difference can be told from none, several asked at once, and how many seeds it would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from groupwise.experiment.spread import Spread

LEVEL = 0.05
"""The chance, over all comparisons of a table together, that one difference is called real where there is none."""

POWER = 0.8
"""The chance with which a real difference should be found."""

MOST_SEEDS = 1000

Key = TypeVar("Key")


def p_value(mean: float, spread: Spread) -> float | None:
    """The chance of a mean this far from 0 where it is 0: two-sided, `t = |mean| / se` with the spread's degrees of
    freedom.

    Args:
        mean: of the differences.
        spread: of that mean.

    Returns:
        the chance; None with one seed, which says nothing of other seeds.

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
    """Chances corrected for being several: at most `LEVEL` of all tables have one below `LEVEL` by chance alone.

    `p'_(i) = max_{j <= i} min(1, (K - j + 1) p_(j))`, the smallest first.

    Args:
        chances: of each comparison.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'c': 0.06, 'b': 0.06}

    Source: Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6 (1979).
    """
    corrected: dict[Key, float] = {}
    most = 0.0
    for place, key in enumerate(sorted(chances, key=lambda each: chances[each])):
        most = max(most, min(1.0, (len(chances) - place) * chances[key]))
        corrected[key] = most
    return corrected


def seeds_needed(mean: float, spread: Spread, *, num_comparisons: int = 1, power: float = POWER) -> int | None:
    """How many seeds would tell the measured difference from none, were it the real one.

    The fewest `S` with `|mean| >= (t_{1 - a/2} + t_{power}) se(S)`, `a = LEVEL / num_comparisons`, quantiles at the
    degrees of freedom that `S` gives.

    Args:
        mean: the measured difference.
        spread: of that mean, from at least two seeds.
        num_comparisons: among which `LEVEL` is shared.
        power: the chance with which it should be found.

    Returns:
        the number; None where `MOST_SEEDS` would not do (or nothing is known): there is next to no difference, or the
        prompts are too few.

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
        then = spread.at(number)
        quantiles: Sequence[float] = stats.t.ppf([1 - LEVEL / num_comparisons / 2, power], then.degrees).tolist()
        return abs(mean) >= sum(quantiles) * then.standard_error

    if not enough(MOST_SEEDS):
        return None
    low, high = 1, MOST_SEEDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
