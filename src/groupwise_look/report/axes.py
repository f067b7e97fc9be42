"""The axes that curves can be drawn over: steps, the wall time up to a step, the decisions up to it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.runs import Run
from groupwise_look.report.results import Variant

# Curves reduced to the number of points that a chart can show, with the extremes of every point.

MOST_POINTS = 300
"""Points of a curve: about one for each two pixels of a chart."""


def round_significant(value: float | None, digits: int = 5) -> float | int | None:
    """Rounds a number to `digits` significant digits; returns `None` for a value that is not finite.

    Example:
        >>> [round_significant(value) for value in (0.123456789, 3.0, float("nan"), None)]
        [0.12346, 3, None, None]
    """
    if value is None or not np.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) and abs(short) < 2**53 else short


def downsample_curve(
    runs: Sequence[tuple[Sequence[int], Sequence[float]]], most_points: int = MOST_POINTS
) -> dict[str, Any] | None:
    """Returns one curve for several runs of one metric: their mean, their range, and the extremes of single values.

    Neighbouring steps share a point where there are more than `most_points` steps. Each run contributes the mean of its
    values at a point; `mean` is the mean over runs, `run_low` and `run_high` are the lowest and the highest run; `low`
    and `high` are the lowest and the highest single value, so that no peak is lost.

    Args:
        runs: steps and finite values of each run; steps may differ, and a run that ended early counts as far as it
            goes.
        most_points: the largest number of points of the curve.

    Returns:
        lists of one length: `step`, `mean`; with several runs `num_runs`, `run_low`, `run_high`; where steps share a
            point `low`, `high`.
        `None` without a value.

    Example:
        >>> downsample_curve([([1, 2, 3, 4], [0.0, 1.0, 0.0, 9.0])], most_points=2)
        {'step': [1.5, 3.5], 'mean': [0.5, 4.5], 'low': [0, 0], 'high': [1, 9]}
        >>> downsample_curve([([1, 2], [0.0, 1.0]), ([1], [1.0])])
        {'step': [1, 2], 'mean': [0.5, 1], 'num_runs': [2, 1], 'run_low': [0, 1], 'run_high': [1, 1]}
    """
    runs = [(steps, values) for steps, values in runs if len(steps)]
    if not runs:
        return None
    starts, centres = _points(np.unique(np.concatenate([np.asarray(steps) for steps, _ in runs])), most_points)
    shape = (len(runs), len(starts))
    total, count = np.zeros(shape), np.zeros(shape)
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    for run_index, (steps, values) in enumerate(runs):
        point = np.searchsorted(starts, np.asarray(steps), side="right") - 1
        value = np.asarray(values, dtype=np.float64)
        count[run_index] = np.bincount(point, minlength=len(starts))
        # Values near the largest number would overflow when summed.
        with np.errstate(over="ignore"):
            total[run_index] = np.bincount(point, weights=value, minlength=len(starts))
        np.minimum.at(low[run_index], point, value)
        np.maximum.at(high[run_index], point, value)
    has_values = count > 0
    with np.errstate(invalid="ignore", over="ignore"):
        run_mean = np.where(has_values, total / np.maximum(count, 1), np.nan)
        mean = np.where(has_values, run_mean, 0.0).sum(0) / has_values.sum(0)
    curve = {"step": centres, "mean": mean}
    if len(runs) > 1:
        curve |= {
            "num_runs": has_values.sum(0),
            "run_low": np.where(has_values, run_mean, np.inf).min(0),
            "run_high": np.where(has_values, run_mean, -np.inf).max(0),
        }
    if count.max() > 1:
        curve |= {"low": low.min(0), "high": high.max(0)}
    return {name: [round_significant(float(value)) for value in values] for name, values in curve.items()}


def downsample_quantiles(
    values: Mapping[int, np.ndarray], levels: Sequence[float], most_points: int = MOST_POINTS
) -> dict[str, Any] | None:
    """Returns quantiles over steps, taken over all values of the steps that share a point.

    Args:
        values: step -> finite values.
        levels: levels of the quantiles, between 0 and 1.
        most_points: the largest number of points of a quantile's curve.

    Returns:
        `step`, and `quantiles`: one list a level; `None` without a value.

    Example:
        >>> downsample_quantiles({1: np.array([0.0, 2.0]), 2: np.array([1.0])}, [0.0, 0.5, 1.0])
        {'step': [1, 2], 'quantiles': [[0, 1], [1, 1], [2, 1]]}
    """
    steps = np.array(sorted(step for step, step_values in values.items() if len(step_values)))
    if not len(steps):
        return None
    starts, centres = _points(steps, most_points)
    points = np.searchsorted(starts, steps, side="right") - 1
    together = [np.concatenate([values[int(step)] for step in steps[points == point]]) for point in range(len(starts))]
    quantiles = [np.quantile(sample, levels) for sample in together]
    return {
        "step": [round_significant(float(centre)) for centre in centres],
        "quantiles": [[round_significant(float(quantile)) for quantile in column] for column in np.array(quantiles).T],
    }


def _points(steps: np.ndarray, most_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first step of each point and the middle of its steps."""
    if len(steps) <= most_points:
        return steps, steps.astype(np.float64)
    edges = np.linspace(0, len(steps), most_points + 1).round().astype(int)
    return steps[edges[:-1]], (steps[edges[:-1]] + steps[edges[1:] - 1]) / 2


METRICS = {"seconds": "step_time", "decisions": "num_decisions"}
"""Name of an axis -> the metric whose sum over steps it is."""
MOST_STEPS = 200
"""Steps of a variant at which its axes are known; a page interpolates between them."""


def axes(variants: Sequence[Variant]) -> list[dict[str, Any]]:
    r"""Returns for every variant its axes, `{"step", "seconds", "decisions"}`: lists of one length.

    A value is `sum_{t <= step} metric_t`, the mean over the runs that reached the step. An axis whose metric no run of
    the variant recorded is absent.

    Example:
        >>> from pathlib import Path
        >>> rows = [{"step": 0}, {"step": 1, "step_time": 2.0}, {"step": 2, "step_time": 4.0}]
        >>> axes([Variant("a", (Run(Path("a"), {}, [], None, rows, "unfinished", []),))])
        [{'step': [0, 1, 2], 'seconds': [0, 2, 6]}]
    """
    return [_axes_of(variant) for variant in variants]


def _axes_of(variant: Variant) -> dict[str, Any]:
    steps = sorted({int(row["step"]) for run in variant.runs for row in run.rows})
    if not steps:
        return {"step": [0]}
    places = np.unique(np.linspace(0, len(steps) - 1, MOST_STEPS).round().astype(int))
    chosen = np.array(steps, dtype=np.float64)[places]
    variant_axes: dict[str, Any] = {"step": [int(step) for step in chosen]}
    for name, metric in METRICS.items():
        sums = [column for run in variant.runs if (column := _sums(run, metric, chosen)) is not None]
        if not sums:
            continue
        columns = np.array(sums)
        reached = ~np.isnan(columns)
        with np.errstate(over="ignore"):
            means = np.where(reached, columns, 0.0).sum(0) / np.maximum(reached.sum(0), 1)
        # A run that ended early takes its share out of the mean, which may fall there; an axis never does.
        if np.isfinite(means).all():
            variant_axes[name] = [round_significant(float(value)) for value in np.maximum.accumulate(means)]
    return variant_axes


def _sums(run: Run, metric: str, steps: np.ndarray) -> np.ndarray | None:
    """Returns the sum of a metric up to each step, NaN beyond the run's last step; None where it was not recorded."""
    metric_steps, values = run.series(metric)
    if not metric_steps:
        return None
    with np.errstate(over="ignore"):
        total = np.cumsum(values)
    sums = np.concatenate([[0.0], total])[np.searchsorted(metric_steps, steps, side="right")]
    return np.where(steps > metric_steps[-1], np.nan, sums)
