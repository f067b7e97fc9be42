"""The axes that curves can be drawn over: steps, the wall time up to a step, the decisions up to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from groupwise.report.downsample import round_significant
from groupwise.report.variants import Variant
from groupwise.runs import Run

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
    places = (
        np.unique(np.linspace(0, len(steps) - 1, MOST_STEPS).round().astype(int)) if len(steps) > MOST_STEPS else None
    )
    chosen = np.array(steps if places is None else [steps[place] for place in places], dtype=np.float64)
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
