"""Numbers that are read beside each other, with as many decimals as it takes to tell them apart."""

from __future__ import annotations

import math
from collections.abc import Sequence


def alike(values: Sequence[float | None]) -> list[str]:
    """The same decimals for all: three digits of the largest, or two of what lies between the largest and the smallest
    if those need more.

    27.80 and 27.91 dB are not "27.8 and 27.9", and 27.8026 says nothing more.

    Args:
        values: None, which becomes "-", where a number is missing.

    Example:
        >>> alike([27.803, 27.905, None])
        ['27.80', '27.91', '-']
        >>> alike([0.246, 1.0]), alike([-0.003534, -0.003495]), alike([1520.0, 10.0])
        (['0.246', '1.000'], ['-0.003534', '-0.003495'], ['1520', '10'])
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    largest, apart = max(map(abs, finite), default=0.0), max(finite, default=0.0) - min(finite, default=0.0)
    # 1 counts as just below 1, so that shares have three decimals also where one of them is whole.
    first = math.ceil(math.log10(float(f"{largest:.2e}"))) - 1 if largest > 0 else 0
    # What differs by less than a millionth is the same.
    between = math.floor(math.log10(apart)) if apart > 1e-6 * largest else first
    decimals = max(2 - first, 1 - between, 0)
    return ["-" if value is None else f"{value:.{decimals}f}" for value in values]
