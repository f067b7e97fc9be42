"""The tables of `benchmarks/results/seeds.md`, from the lines that `seeds.py` left."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from resumable import table_row
from seeds_metrics import Row, above, control_names, interval, metrics_table, spread, told

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


INTRODUCTION = """\
Written by `make seeds`, which makes the runs that are missing: `groupwise train NAME seed=S` with its controls,
every run in a process and with a cache of its own. A number is the mean over seeds (the lowest to the highest).
Behind a control's name stand its own score, how much the run is above it with its 95 % interval over seeds, and
with how many seeds the run alone, over its held-out prompts, is told to be above it or below. CPU seconds are those
of the whole command, on a machine that computed other things as well. Until 2026-11-23 a control took the run's
wall seconds: where other work came and went meanwhile, it took more or fewer steps than it would alone (`steps` and
`date` in `seeds.jsonl`). Later ones take as many seconds of work. An experiment's second table holds every held-out
metric before and after, with its gain (the lowest to the highest) and with how many seeds it went up and down;
beside each control, how much the run ends above it with its 95 % interval over seeds (the bootstrap of `groupwise
compare`), with how many seeds it is above and below, and with how many that is told from the run's held-out prompts
alone."""


def document(rows: Sequence[Row], order: Sequence[str], need_a_model: Sequence[str]) -> str:
    """The whole file: a row an experiment, then for each a table of its seeds and one of its held-out metrics.

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
        INTRODUCTION,
        "",
        table_row(heads),
        "|" + "---|" * len(heads),
        *(table_row(_summary(name, measured)) for name, measured in by_name.items()),
        *(table_row([f"`{name}`", "asks for a model or a file of yours", *[""] * 7]) for name in need_a_model),
        "",
        *(
            f"Measured on {machine}."
            for machine in sorted({re.sub(r", load \S+ before", "", row["machine"]) for row in rows})
        ),
    ]
    for name, measured in by_name.items():
        if measured:
            lines += ["", f"## {name}", "", *_seeds(name, measured)]
            if table := metrics_table(measured):
                lines += ["", *table]
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
        "; ".join(_control(control, ended) for control in control_names(ended)) or ("no control" if ended else ""),
        ", ".join(f"`{rule}` {count} of {len(rows)}" for rule, count in findings.most_common()) or "nothing",
        spread([row["cpu_seconds"] for row in rows], digits=0),
        ", ".join(
            f"{_exit(status)}: {count} of {len(rows)}" for status, count in Counter(row["exit"] for row in rows).items()
        ),
    ]


def _control(name: str, rows: Sequence[Row]) -> str:
    """A control's score, how much the run is above it over seeds, and with how many seeds that is told."""
    metric = rows[0]["metric"]
    scores = spread([row["controls"][name]["end"].get(metric) for row in rows if name in row["controls"]])
    more, fewer, number = told(rows, name, metric)
    estimate = above(rows, name, metric)
    if estimate is None or not number:
        return f"{name} {scores}"
    return f"{name} {scores}: {interval(estimate, 3)}, above with {more} and below with {fewer} of {number} seeds"


def _seeds(name: str, rows: Sequence[Row]) -> list[str]:
    ended = [row for row in rows if row.get("after") is not None]
    also = [metric for metric in ALSO.get(name, ()) if any(metric in row["end"] for row in ended)]
    controls = control_names(ended)
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
