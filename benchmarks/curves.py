"""The curves of source 001's runs as tables: `python benchmarks/curves.py runs/seeds/source_001_*`.

A number is the mean over the first or the last quarter of a stage's steps; over seeds one a run, and from three on the
mean (the lowest to the highest). A second table says what a stage as a whole did: held-out metrics after it, the share
of its steps whose gradient was clipped, and the largest mean of a step's advantages.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from resumable import table_row

from groupwise.config import ConfigError
from groupwise.runs import Run, read_run

CURVES = (
    *("loss_pg", "loss_sup", "loss_sup / lambda_sup", "loss_cons", "loss_kl", "lambda_sup"),
    *("advantages_mean", "advantages_std", "rewards_mean", "grad_norm", "clip_ratio/region_mean"),
)
HELD_OUT = "eval/"
Rows = Sequence[Mapping[str, Any]]


def curves(runs: Sequence[Run]) -> list[str]:
    """A row a curve; for each stage that samples its first and its last quarter.

    Args:
        runs: of any of the experiments; those of one name are its seeds.
    """
    columns = [
        (stage, [_sampled(steps(run, stage)) for run in same]) for same in _by_name(runs) for stage in _stages(same[0])
    ]
    columns = [(stage, sampled) for stage, sampled in columns if all(sampled)]
    heads = ["", *(head for stage, _ in columns for head in (f"{stage}, first quarter", "last"))]
    lines = [table_row(heads), "|" + "---|" * len(heads)]
    for curve in CURVES:
        cells = [
            seeds([_mean(quarter(rows, last=last), curve) for rows in sampled])
            for _, sampled in columns
            for last in (False, True)
        ]
        lines.append(table_row([f"`{curve}`", *cells]))
    return lines


def stages(runs: Sequence[Run]) -> list[str]:
    """A row a stage: held-out metrics after it, the share of clipped gradients, and the largest mean advantage.

    Args:
        runs: of one experiment.
    """
    held_out = list(dict.fromkeys(name for row in runs[0].rows for name in row if name.startswith(HELD_OUT)))
    heads = [
        *("stage", "max_grad_norm", *(name.removeprefix(HELD_OUT) for name in held_out)),
        *("share of steps with a larger grad_norm", "largest mean of a step's advantages"),
    ]
    lines = [table_row(heads), "|" + "---|" * len(heads)]
    for stage in _stages(runs[0]):
        limit = _limit(runs[0], stage)
        rows = [steps(run, stage) for run in runs]
        cells = [seeds([_last(each, name) for each in rows], digits=4) for name in held_out]
        sampled = [each for each in map(_sampled, rows) if each]
        cells.append(seeds([_share_above(each, limit) for each in sampled]))
        cells.append(
            seeds(
                [
                    max((abs(row["advantages_mean"]) for row in each if "advantages_mean" in row), default=0.0)
                    for each in sampled
                ]
            )
        )
        lines.append(table_row([stage, "none" if limit is None else f"{limit:g}", *cells]))
    return lines


def steps(run: Run, stage: str) -> Rows:
    """The rows of a stage, in order."""
    return [row for row in run.rows if row.get("stage") == stage]


def quarter(rows: Rows, *, last: bool) -> Rows:
    """The first or the last quarter of rows; one at least.

    Args:
        rows: in order.
        last: whether it is the last.
    """
    number = max(1, len(rows) // 4)
    return rows[-number:] if last else rows[:number]


def seeds(values: Sequence[float | None], digits: int = 3) -> str:
    """One or two numbers, or the mean (the lowest to the highest) of more.

    Args:
        values: of the seeds; none where a run has no such number.
        digits: that count. What is below 1e-12, a sum of rounding errors, is 0.
    """
    there = [value for value in values if value is not None]
    several = len(there) > 2
    numbers = [statistics.fmean(there), min(there), max(there)] if several else there
    said = ["0" if abs(value) < 1e-12 else f"{value:.{digits}g}" for value in numbers]
    if several and len(set(said)) == 1:
        return said[0]
    return "{} ({} to {})".format(*said) if several else ", ".join(said)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the tables of the runs that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders of source_001_...")
    try:
        runs = [_ended(folder) for folder in parser.parse_args(arguments).runs]
    except ConfigError as error:
        sys.exit(str(error))
    print("\n".join(curves(runs)))
    for same in _by_name(runs):
        print(f"\n{same[0].name}, seeds {', '.join(str(run.seed) for run in same)}:\n")
        print("\n".join(stages(same)))


def _ended(folder: Path) -> Run:
    run = read_run(folder)
    if run.summary is None:
        raise ConfigError(f"{folder} has not ended; go on with `groupwise resume {folder}`")
    return run


def _by_name(runs: Sequence[Run]) -> Iterator[list[Run]]:
    for name in dict.fromkeys(run.name for run in runs):
        yield [run for run in runs if run.name == name]


def _stages(run: Run) -> list[str]:
    return [stage["name"] for stage in run.config["stages"]]


def _share_above(rows: Sequence[Mapping[str, Any]], limit: float | None) -> float:
    """Computes the share of the steps whose gradient is longer than a limit; 0 where there is none."""
    norms = [row["grad_norm"] for row in rows if "grad_norm" in row]
    return 0.0 if limit is None or not norms else statistics.fmean(norm > limit for norm in norms)


def _limit(run: Run, stage: str) -> float | None:
    """The norm at which the gradient is clipped."""
    (changes,) = (each["set"] for each in run.config["stages"] if each["name"] == stage)
    return changes.get("train", {}).get("max_grad_norm", run.config["train"]["max_grad_norm"])


def _sampled(rows: Rows) -> Rows:
    return [row for row in rows if "loss_pg" in row]


def _mean(rows: Rows, curve: str) -> float | None:
    name, _, divisor = curve.partition(" / ")
    values = [row[name] / row.get(divisor, 1.0) for row in rows if name in row]
    return statistics.fmean(values) if values else None


def _last(rows: Rows, name: str) -> float | None:
    return next((row[name] for row in reversed(rows) if name in row), None)


if __name__ == "__main__":
    main()
