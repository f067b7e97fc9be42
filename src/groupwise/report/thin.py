"""Curves with as many points as an eye can tell apart, of which none hides an extreme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MOST_POINTS = 300
"""Points of a curve: about one for each two pixels of a chart."""


def tidy(value: float | None, digits: int = 5) -> float | int | None:
    """A number for a page: `digits` significant digits; `None` for what is not finite.

    Args:
        value: any number.
        digits: significant ones.

    Example:
        >>> [tidy(value) for value in (0.123456789, 3.0, float("nan"), None)]
        [0.12346, 3, None, None]
    """
    if value is None or not np.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) and abs(short) < 2**53 else short


def thin_curve(runs: Sequence[tuple[Sequence[int], Sequence[float]]], most: int = MOST_POINTS) -> dict[str, Any] | None:
    """One curve of several runs of one metric: their mean, how far the runs are apart, and the extremes of single
    values.

    Neighbouring steps share a point where there are more than `most`. Of a point's steps, each run gives its mean;
    `mean` is the mean of the runs, and `run_low`, `run_high` the lowest and highest of them; `low` and `high` are the
    lowest and highest single value, so that no peak is lost.

    Args:
        runs: steps and finite values of each; steps need not agree, and a run that ended early counts as far as it
            goes.
        most: points.

    Returns:
        lists of one length: `step`, `mean`; with several runs `num_runs`, `run_low`, `run_high`; where steps share a
            point `low`, `high`.
        `None` without a value.

    Example:
        >>> thin_curve([([1, 2, 3, 4], [0.0, 1.0, 0.0, 9.0])], most=2)
        {'step': [1.5, 3.5], 'mean': [0.5, 4.5], 'low': [0, 0], 'high': [1, 9]}
        >>> thin_curve([([1, 2], [0.0, 1.0]), ([1], [1.0])])
        {'step': [1, 2], 'mean': [0.5, 1], 'num_runs': [2, 1], 'run_low': [0, 1], 'run_high': [1, 1]}
    """
    runs = [(steps, values) for steps, values in runs if len(steps)]
    if not runs:
        return None
    starts, centres = _points(np.unique(np.concatenate([np.asarray(steps) for steps, _ in runs])), most)
    shape = (len(runs), len(starts))
    total, count = np.zeros(shape), np.zeros(shape)
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    for row, (steps, values) in enumerate(runs):
        place, value = (
            np.searchsorted(starts, np.asarray(steps), side="right") - 1,
            np.asarray(values, dtype=np.float64),
        )
        count[row] = np.bincount(place, minlength=len(starts))
        # Values near the largest number would overflow when summed.
        with np.errstate(over="ignore"):
            total[row] = np.bincount(place, weights=value, minlength=len(starts))
        np.minimum.at(low[row], place, value)
        np.maximum.at(high[row], place, value)
    there = count > 0
    with np.errstate(invalid="ignore", over="ignore"):
        own = np.where(there, total / np.maximum(count, 1), np.nan)
        mean = np.where(there, own, 0.0).sum(0) / there.sum(0)
    curve = {"step": centres, "mean": mean}
    if len(runs) > 1:
        curve |= {
            "num_runs": there.sum(0),
            "run_low": np.where(there, own, np.inf).min(0),
            "run_high": np.where(there, own, -np.inf).max(0),
        }
    if count.max() > 1:
        curve |= {"low": low.min(0), "high": high.max(0)}
    return {name: [tidy(float(value)) for value in values] for name, values in curve.items()}


def thin_quantiles(
    values: Mapping[int, np.ndarray], levels: Sequence[float], most: int = MOST_POINTS
) -> dict[str, Any] | None:
    """Quantiles over steps, of all values of the steps that share a point.

    Args:
        values: step -> finite values.
        levels: between 0 and 1.
        most: points.

    Returns:
        `step`, and `quantiles`: one list a level; `None` without a value.

    Example:
        >>> thin_quantiles({1: np.array([0.0, 2.0]), 2: np.array([1.0])}, [0.0, 0.5, 1.0])
        {'step': [1, 2], 'quantiles': [[0, 1], [1, 1], [2, 1]]}
    """
    steps = np.array(sorted(step for step, own in values.items() if len(own)))
    if not len(steps):
        return None
    starts, centres = _points(steps, most)
    places = np.searchsorted(starts, steps, side="right") - 1
    found = []
    for place in range(len(starts)):
        found.append(np.quantile(np.concatenate([values[int(step)] for step in steps[places == place]]), levels))
    return {
        "step": [tidy(float(each)) for each in centres],
        "quantiles": [[tidy(float(each)) for each in column] for column in np.array(found).T],
    }


def _points(steps: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The first step of each point, and its middle."""
    if len(steps) <= most:
        return steps, steps.astype(np.float64)
    edges = np.linspace(0, len(steps), most + 1).round().astype(int)
    return steps[edges[:-1]], (steps[edges[:-1]] + steps[edges[1:] - 1]) / 2
