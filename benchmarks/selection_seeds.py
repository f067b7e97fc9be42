"""What the runs of a grid of source 004 say seed by seed, which its `results.json` does not hold."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from resumable import table_row
from seeds_metrics import counts, interval

from groupwise.config import ConfigError, read_json
from groupwise.runs import read_run
from groupwise_look.compare.comparison import evaluated
from groupwise_look.compare.grids import Variant
from groupwise_look.compare.statistics import bootstrap

MEASURED = ("groups/flat", "groups/admitted", "advantages_std")
"""Means over the steps of a run that the page quotes."""
Ends = Mapping[int, Mapping[str, float]]
"""seed -> held-out metric -> value at the end"""


def run_folders(grid: Path, results: Mapping[str, Any]) -> dict[str, dict[int, Path]]:
    """Variant -> seed -> run folder, of the runs that the grid's table holds.

    Args:
        grid: the folder that `groupwise compare` wrote.
        results: what its `results.json` holds.
    """
    written = read_json(grid / "comparison.json")["variants"]
    folders = {Variant(tuple(overrides)).name: grid / name for name, overrides in written.items()}
    return {
        row["variant"]: {seed: folders[row["variant"]] / f"seed-{seed}" for seed in row["seeds"]}
        for row in results["rows"]
    }


def differences(runs: Mapping[str, Mapping[int, Path]], results: Mapping[str, Any], against: str | None) -> list[str]:
    """A table of the variants' differences from one of them, for each number of examples and seed by seed: the mean,
    its 95 % interval over seeds, and with how many seeds it goes up and down.

    Args:
        runs: what `run_folders` gave.
        results: of the grid.
        against: the variant that the others are compared with; the first where it is `None`.

    Raises:
        ConfigError: the grid has no such variant.
    """
    baseline = against or next(iter(runs))
    if baseline not in runs:
        raise ConfigError(f"there is no variant {baseline!r}; write one of {', '.join(runs)}")
    metrics = list(results["rows"][0]["end"])
    ends = {
        variant: {seed: evaluated(folder, "after") for seed, folder in folders.items()}
        for variant, folders in runs.items()
    }
    heads = [f"minus `{baseline}`", *(metric.rpartition("/")[2] for metric in metrics), "1 to 4"]
    lines = [table_row(heads), "|" + "---|" * len(heads)]
    for variant in runs:
        if variant != baseline:
            cells = [_difference(_gaps(ends[variant], ends[baseline], metric)) for metric in metrics]
            gaps = _gaps(ends[variant], ends[baseline], results["metric"])
            lines.append(table_row([f"`{variant}`", *cells, counts(gaps.values())]))
    return lines


def ranges(runs: Mapping[str, Mapping[int, Path]], metric: str) -> list[str]:
    """A table of the lowest and the highest seed of each variant: the score before and after, the examples shown, and
    the groups and advantages of a run's steps.

    Args:
        runs: what `run_folders` gave.
        metric: that decides.
    """
    heads = ["variant", "before", "after", "shown", *MEASURED]
    lines = [table_row(heads), "|" + "---|" * len(heads)]
    shots = f"{metric.rpartition('/')[0]}/shots"
    for variant, folders in runs.items():
        read = [read_run(folder) for folder in folders.values()]
        ends = [evaluated(folder, "after") for folder in folders.values()]
        values = [[(run.summary or {}).get(when) for run in read] for when in ("before", "after")]
        values += [[end.get(shots) for end in ends], *([_mean(run.rows, name) for run in read] for name in MEASURED)]
        lines.append(table_row([f"`{variant}`", *map(_ends, values)]))
    return lines


def _gaps(ends: Ends, baseline: Ends, metric: str) -> dict[int, float]:
    """Seed -> difference of the two variants."""
    return {seed: end[metric] - baseline[seed][metric] for seed, end in ends.items() if seed in baseline}


def _difference(gaps: Mapping[int, float]) -> str:
    over = bootstrap({seed: {"": gap} for seed, gap in gaps.items()})
    return f"{interval(over, 3)}; {counts(gaps.values())}"


def _ends(values: Sequence[float | None]) -> str:
    there = [value for value in values if value is not None]
    low, high = (f"{end(there):.3f}" for end in (min, max)) if there else ("", "")
    return low if low == high else f"{low} to {high}"


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if isinstance(row.get(name), int | float)]
    return statistics.fmean(values) if values else None
