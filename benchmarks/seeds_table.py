"""The tables of `benchmarks/results/seeds.md`, from the lines that `seeds.py` left."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from resumable import table_row

from groupwise.experiment import load_experiment
from groupwise.experiment.bounds import difference_bounds, score_bounds
from groupwise.experiment.statistics import bootstrap

Row = Mapping[str, Any]
ALSO = {
    "language": ("sampled/correct", "greedy/worked"),
    "language_countdown": ("sampled/solved", "sampled/keeps_the_rules", "sampled/pass@4"),
    "language_knights": ("sampled/logic", "greedy/right", "greedy/length"),
    "guess_the_number": ("greedy/guessed", "greedy/patient"),
    "source_003_small": ("sampled/reward", "greedy/reward"),
    "diffusion": ("ode/judge", "ode/diversity"),
    "diffusion_jpeg": ("ode/small", "ode/judge", "ode/diversity"),
    "restoration": ("restored/judge", "restored/psnr"),
    "restoration_flow": ("ode/judge", "ode/psnr"),
    "restoration_upscale": ("restored/judge", "restored/psnr"),
    "restoration_words": ("restored/words", "restored/judge", "restored/psnr"),
    "restoration_codec": ("restored/codec_ssim", "restored/psnr"),
    "selection": tuple(f"selected/accuracy_{shots}" for shots in range(1, 5)),
}
"""Held-out metrics that stand beside the deciding one, before -> after; those that a run did not report are left out.
"""


def document(rows: Sequence[Row], order: Sequence[str], need_a_model: Sequence[str]) -> str:
    """The whole file: a row an experiment, then a table of seeds for each.

    Args:
        rows: of the configurations that are shipped.
        order: all experiments that can be run.
        need_a_model: those that ask for a model folder.
    """
    names = dict.fromkeys([*order, *(row["experiment"] for row in rows)])
    by_name = {
        name: sorted((row for row in rows if row["experiment"] == name), key=lambda row: row["seed"]) for name in names
    }
    heads = [
        "experiment",
        "seeds",
        "metric",
        "before",
        "after",
        "above its controls by",
        "doctor, at the end",
        "CPU s",
        "exit",
    ]
    lines = [
        "# Shipped experiments with seeds that nobody tuned on",
        "",
        (
            "Written by `make seeds`, which makes the runs that are missing: `groupwise train NAME seed=S` with its"
            " controls, every run in a process and with"
        ),
        (
            "a cache of its own. A number is the mean over seeds (the lowest to the highest). Behind a control's name"
            " stand its own score, how much the run is"
        ),
        (
            "above it with its 95 % interval over seeds, and with how many seeds the run alone, over its held-out"
            " prompts, is told to be above it or below."
        ),
        (
            "CPU seconds are those of the whole command, on a machine that computed other things as well. Until"
            " 2026-11-23 a control took the run's wall seconds:"
        ),
        (
            "where other work came and went meanwhile, it took more or fewer steps than it would alone (`steps` and"
            " `date` in `seeds.jsonl`). Later ones take as many"
        ),
        ("seconds of work."),
        "",
        table_row(heads),
        "|" + "---|" * len(heads),
        *(table_row(_summary(name, measured)) for name, measured in by_name.items()),
        *(table_row([f"`{name}`", "asks for a `--model` of yours", *[""] * 7]) for name in need_a_model),
        "",
        *(
            f"Measured on {machine}."
            for machine in sorted({re.sub(r", load \S+ before", "", row["machine"]) for row in rows})
        ),
    ]
    for name, measured in by_name.items():
        if measured:
            lines += ["", f"## {name}", "", *_seeds(name, measured)]
    return "\n".join(lines) + "\n"


def _summary(name: str, rows: Sequence[Row]) -> list[str]:
    if not rows:
        return [f"`{name}`", "not run yet", *[""] * 7]
    ended = [row for row in rows if row.get("after") is not None]
    findings = Counter(rule for row in rows for rule in dict.fromkeys(row.get("findings", ())))
    seeds = [row["seed"] for row in rows]
    whole = seeds == list(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 1
    return [
        f"`{name}`",
        f"{len(seeds)}: {seeds[0]} to {seeds[-1]}" if whole else f"{len(seeds)}: {', '.join(map(str, seeds))}",
        ended[0]["metric"] if ended else "",
        spread([row["before"] for row in ended]),
        spread([row["after"] for row in ended]),
        "; ".join(_control(control, ended) for control in _controls(ended)) or ("no control" if ended else ""),
        ", ".join(f"`{rule}` {count} of {len(rows)}" for rule, count in findings.most_common()) or "nothing",
        spread([row["cpu_seconds"] for row in rows], digits=0),
        ", ".join(
            f"{_exit(status)}: {count} of {len(rows)}" for status, count in Counter(row["exit"] for row in rows).items()
        ),
    ]


def _controls(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(control for row in rows for control in row["controls"]))


def _control(name: str, rows: Sequence[Row]) -> str:
    """A control's score, how much the run is above it over seeds, and with how many seeds that is told."""
    measured = {row["seed"]: row["controls"][name] for row in rows if name in row["controls"]}
    metric = rows[0]["metric"]
    told = f"{name} {spread([control['end'].get(metric) for control in measured.values()])}"
    gaps = {seed: control["above"][metric] for seed, control in measured.items() if metric in control["above"]}
    if not gaps:
        return told
    scores = [
        score
        for row in rows
        for score in (row["after"], row["controls"].get(name, {}).get("end", {}).get(metric))
        if score is not None
    ]
    bounds = difference_bounds(score_bounds(load_experiment(rows[0]["experiment"]).table(), metric, scores))
    over = bootstrap({seed: {metric: gap[0]} for seed, gap in gaps.items()}).within(bounds)
    above, below = sum(low > 0 for _, low, _ in gaps.values()), sum(high < 0 for _, _, high in gaps.values())
    interval = f" [{over.low:+.3f}, {over.high:+.3f}]" if len(gaps) > 1 else ""
    return f"{told}: {over.mean:+.3f}{interval}, above with {above} and below with {below} of {len(gaps)} seeds"


def _seeds(name: str, rows: Sequence[Row]) -> list[str]:
    ended = [row for row in rows if row.get("after") is not None]
    also = [metric for metric in ALSO.get(name, ()) if any(metric in row["end"] for row in ended)]
    controls = _controls(ended)
    metric = ended[0]["metric"] if ended else "metric"
    heads = [
        "seed",
        f"{metric}, before",
        "after",
        *(f"{each}, before → after" for each in also),
        *controls,
        "doctor",
        "CPU s",
        "exit",
    ]
    lines = [table_row(heads), "|" + "---|" * len(heads)]
    for row in rows:
        start, end, beside = row.get("start", {}), row.get("end", {}), row.get("controls", {})
        cells = [str(row["seed"]), number(row.get("before")), number(row.get("after"))]
        cells += [f"{number(start.get(each))} → {number(end.get(each))}" for each in also]
        cells += [_beside(beside.get(control), metric) for control in controls]
        cells += [_findings(row), f"{row['cpu_seconds']:.0f}", _exit(row["exit"], row.get("error"))]
        lines.append(table_row(cells))
    return lines


def _beside(control: Row | None, metric: str) -> str:
    if control is None:
        return "not measured"
    score, gap = number(control["end"].get(metric)), control["above"].get(metric)
    return score if gap is None else f"{score}: {gap[0]:+.3f} [{gap[1]:+.3f}, {gap[2]:+.3f}]"


def _findings(row: Row) -> str:
    return ", ".join(dict.fromkeys(row.get("findings", ()))) or "nothing"


def _exit(status: int | None, error: str | None = None) -> str:
    said = "past its deadline" if status is None else str(status)
    return f"{said} ({error})" if error else said


def spread(values: Iterable[float | None], digits: int = 3) -> str:
    """The mean, and the lowest and the highest where there are several.

    Args:
        values: of the seeds; none where a run has no such number.
        digits: behind the point.
    """
    there = [value for value in values if value is not None]
    if not there:
        return ""
    mean = f"{sum(there) / len(there):.{digits}f}"
    return mean if len(there) == 1 else f"{mean} ({min(there):.{digits}f} to {max(there):.{digits}f})"


def number(value: float | None) -> str:
    """Three digits behind the point; nothing where there is no number."""
    return "" if value is None else f"{value:.3f}"


def line(row: Row) -> str:
    """A run as a line of progress.

    Args:
        row: its line.
    """
    beside = "".join(
        f"  {name} {number(control['end'].get(row['metric']))}" for name, control in row.get("controls", {}).items()
    )
    score = (
        f"{row['metric']} {number(row['before'])} -> {number(row['after'])}{beside}" if "metric" in row else "no result"
    )
    ended = f"{row['cpu_seconds']:.0f} CPU s  exit {_exit(row['exit'], row.get('error'))}"
    return f"{row['experiment']} seed {row['seed']}: {score}  doctor: {_findings(row)}  {ended}"
