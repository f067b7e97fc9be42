"""Methods of the result of `groupwise.train`: entry points of `groupwise.results`, each called with the run folder."""

from html import escape
from itertools import islice
from pathlib import Path

from groupwise.runs import Run, read_run
from groupwise_look.diagnosis import Findings, diagnose
from groupwise_look.report import write_page

_WIDTH, _HEIGHT = 480, 120
_NUM_SAMPLES = 3


def report(folder: Path) -> Path:
    """Writes the page about the run, which opens from disk in a browser, and returns its path."""
    return write_page([read_run(folder)], folder / "report.html")


def doctor(folder: Path) -> Findings:
    """Returns what is wrong with the run: what shows it, what it means, what to set."""
    run = read_run(folder)
    return diagnose(run.rows, run.config)


def html(folder: Path) -> str:
    """Returns a table of the result, a curve of the reward and of the score, and some answers, for a notebook."""
    run = read_run(folder)
    summary = run.summary or {}
    cells = [
        (name, summary[name])
        for name in ("metric", "before", "after", "baseline", "steps")
        if summary.get(name) is not None
    ]
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{_cell(value)}</td></tr>" for name, value in cells)
    table = f"<table>{rows or '<tr><td>the run has not ended</td></tr>'}</table>"
    score = f"eval/{summary.get('metric')}"
    curves = "".join(_curve(run, name) for name in ("reward", score))
    return f"<div><b>{escape(str(folder))}</b>{table}{curves}{_samples(run)}</div>"


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else escape(str(value))


def _curve(run: Run, metric: str) -> str:
    """Draws a metric over the steps as an SVG; nothing where fewer than two steps have it."""
    steps, values = run.series(metric)
    if len(steps) < 2:
        return ""
    low, high = min(values), max(values)
    across, up = _WIDTH / max(steps[-1] - steps[0], 1), _HEIGHT / ((high - low) or 1.0)
    points = zip(steps, values, strict=True)
    line = " ".join(f"{(step - steps[0]) * across:.1f},{_HEIGHT - (value - low) * up:.1f}" for step, value in points)
    title = f"{metric}, steps {steps[0]} to {steps[-1]}: {values[0]:.3g} to {values[-1]:.3g}"
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="-2 -2 {_WIDTH + 4} {_HEIGHT + 4}">'
        f'<polyline points="{line}" fill="none" stroke="#1f6feb" stroke-width="2"/></svg></figure>'
    )


def _samples(run: Run) -> str:
    """Returns a table of the first records of the newest evaluation."""
    if not run.evaluations:
        return ""
    records = islice(run.records(run.evaluations[max(run.evaluations)], []), _NUM_SAMPLES)
    names = ("prompt", "text", "rewards")
    rows = "".join(
        "<tr>" + "".join(f"<td><pre>{escape(str(record.get(name, '')))}</pre></td>" for name in names) + "</tr>"
        for record in records
    )
    head = "".join(f"<th>{name}</th>" for name in names)
    return f"<table><tr>{head}</tr>{rows}</table>"
