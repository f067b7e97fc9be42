"""The validator that a stochastic sampler has noise at all."""

from __future__ import annotations

from collections.abc import Callable


def noisy(key: str, usual: float) -> Callable[[float], float]:
    """Makes a validator of a noise level, which must be above 0.

    Example:
        >>> noisy("eta", 0.7)(0.5)
        0.5
        >>> noisy("eta", 0.7)(0.0)
        Traceback (most recent call last):
        ...
        ValueError: eta = 0.0 leaves a transition without noise, and so without a log-prob to train by; write for example eta = 0.7
    """  # noqa: E501

    def check(value: float) -> float:
        if value <= 0:
            raise ValueError(
                f"{key} = {value} leaves a transition without noise, and so without a log-prob to train by; write for"
                f" example {key} = {usual}"
            )
        return value

    return check
