"""Numbers that stand beside each other, written with as many decimals as tell them apart."""

from __future__ import annotations

import math
from collections.abc import Sequence


def same_decimals(values: Sequence[float | None]) -> list[str]:
    """Writes all values with the same decimals: three digits of the largest, or two digits of the difference between
    the largest and the smallest where those need more.

    27.80 and 27.91 dB are not "27.8 and 27.9", and 27.8026 says nothing more.

    Args:
        values: None, which becomes "-", where a number is missing.

    Example:
        >>> same_decimals([27.803, 27.905, None])
        ['27.80', '27.91', '-']
        >>> same_decimals([0.246, 1.0]), same_decimals([-0.003534, -0.003495]), same_decimals([1520.0, 10.0])
        (['0.246', '1.000'], ['-0.003534', '-0.003495'], ['1520', '10'])
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    largest, spread = max(map(abs, finite), default=0.0), max(finite, default=0.0) - min(finite, default=0.0)
    # 1 counts as just below 1, so that shares have three decimals also where one of them is whole.
    leading_exponent = math.ceil(math.log10(float(f"{largest:.2e}"))) - 1 if largest > 0 else 0
    # Values that differ by less than a millionth count as equal.
    gap_exponent = math.floor(math.log10(spread)) if spread > 1e-6 * largest else leading_exponent
    decimals = max(2 - leading_exponent, 1 - gap_exponent, 0)
    return ["-" if value is None else f"{value:.{decimals}f}" for value in values]
