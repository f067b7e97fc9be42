"""Every held-out metric of an experiment over its seeds: before, after, and beside each control."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from resumable import table_row

from groupwise.experiment import load_experiment
from groupwise_look.compare.grids import difference_bounds, score_bounds
from groupwise_look.compare.statistics import Estimate, bootstrap

Row = Mapping[str, Any]
DIGITS = 5
"""As many as `seeds.jsonl` has, so that a page may round them."""


def metrics_table(rows: Sequence[Row]) -> list[str]:
    """A row a metric.

    Args:
        rows: lines of `seeds.jsonl` of one experiment; those without a result are left out.

    Returns:
        the lines of the table; none where no run has a result.
    """
    ended = [row for row in rows if row.get("after") is not None]
    if not ended:
        return []
    controls = control_names(ended)
    heads = ["metric", "before", "after", "after - before"]
    heads += [head for name in controls for head in (name, f"after - {name}")]
    lines = [table_row(heads), "|" + "---|" * len(heads)]
    for metric in dict.fromkeys(metric for row in ended for metric in row["end"]):
        gains = [
            row["end"][metric] - row["start"][metric] for row in ended if metric in row["start"].keys() & row["end"]
        ]
        cells = [
            f"`{metric}`",
            *(spread([row[place].get(metric) for row in ended], DIGITS) for place in ("start", "end")),
        ]
        cells.append(f"{spread(gains, DIGITS, sign=True)}; {counts(gains)}" if gains else "")
        for name in controls:
            scores = [row["controls"][name]["end"].get(metric) for row in ended if name in row["controls"]]
            cells += [spread(scores, DIGITS), _above(ended, name, metric)]
        lines.append(table_row(cells))
    return lines


def control_names(rows: Iterable[Row]) -> list[str]:
    """The controls that any of the rows has, in the order of the rows."""
    return list(dict.fromkeys(name for row in rows for name in row["controls"]))


def told(rows: Sequence[Row], control: str, metric: str) -> tuple[int, int, int]:
    """With how many seeds the run alone, over its held-out prompts, is told to be above its control, and below, of how
    many.

    Args:
        rows: of runs that ended.
        control: its name.
        metric: held out.
    """
    intervals = [
        row["controls"][control]["above"][metric]
        for row in rows
        if metric in row["controls"].get(control, {}).get("above", ())
    ]
    return sum(low > 0 for _, low, _ in intervals), sum(high < 0 for _, _, high in intervals), len(intervals)


def above(rows: Sequence[Row], control: str, metric: str) -> Estimate | None:
    """How much runs are above their controls, seed by seed: the mean and its 95 % interval over seeds, by the bootstrap
    of `groupwise compare`; `None` where no control has the metric.

    Args:
        rows: of runs that ended.
        control: its name.
        metric: held out.
    """
    found = _gaps(rows, control, metric)
    if not found:
        return None
    ends = [end for row in rows for end in (row["end"], row["controls"].get(control, {}).get("end", {}))]
    scores = [end[metric] for end in ends if metric in end]
    bounds = score_bounds(_config(rows[0]["experiment"]), metric, scores)
    return bootstrap({seed: {metric: gap} for seed, gap in found.items()}).within(difference_bounds(bounds))


def interval(estimate: Estimate, digits: int) -> str:
    """A difference, with its interval where there are several seeds.

    Args:
        estimate: over seeds.
        digits: behind the point.
    """
    mean, low, high = (f"{value:+.{digits}f}" for value in (estimate.mean, estimate.low, estimate.high))
    return f"{mean} [{low}, {high}]" if estimate.num_seeds > 1 else mean


def counts(gaps: Iterable[float]) -> str:
    """With how many seeds something went up, and down."""
    values = list(gaps)
    return f"{sum(value > 0 for value in values)} up, {sum(value < 0 for value in values)} down of {len(values)}"


def spread(values: Iterable[float | None], digits: int = 3, *, sign: bool = False) -> str:
    """The mean, and the lowest and the highest where there are several.

    Args:
        values: of the seeds; none where a run has no such number.
        digits: behind the point.
        sign: whether a positive number has one.
    """
    there = [value for value in values if value is not None]
    if not there:
        return ""
    mean, low, high = (
        f"{value:{'+' if sign else ''}.{digits}f}" for value in (statistics.fmean(there), min(there), max(there))
    )
    return mean if len(there) == 1 else f"{mean} ({low} to {high})"


@cache
def _config(experiment: str) -> dict[str, Any]:
    return load_experiment(experiment).table()


def _above(rows: Sequence[Row], control: str, metric: str) -> str:
    estimate = above(rows, control, metric)
    if estimate is None:
        return ""
    said = f"{interval(estimate, DIGITS)}; {counts(_gaps(rows, control, metric).values())}"
    more, fewer, number = told(rows, control, metric)
    return f"{said}; told {more} up, {fewer} down" if number else said


def _gaps(rows: Sequence[Row], control: str, metric: str) -> dict[int, float]:
    """Seed -> how much the run is above its control."""
    gaps = {}
    for row in rows:
        beside = row["controls"].get(control, {"end": {}, "above": {}})
        if metric in beside["above"]:
            gaps[row["seed"]] = beside["above"][metric][0]
        elif metric in beside["end"].keys() & row["end"]:
            gaps[row["seed"]] = row["end"][metric] - beside["end"][metric]
    return gaps
