"""`groupwise doctor`: what the rules see in runs, what shows it, what it means, and what to set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from groupwise.diagnosis import Finding, Series
    from groupwise.runs import Run

FOUND = 3
"""The exit status where a fault or a warning holds at the end of a stage."""

_NUM_VALUES = 6


def doctor(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, finished or not, or folders of runs.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object, with the evidence of every finding.")
    ] = False,
) -> None:
    """Say what is wrong with runs, from their metrics: what shows it, what it means, what to set.

    Ends with 0 where nothing is wrong, 3 where a fault or a warning holds at the end of a stage, 2 where there is no
    run to read.
    """
    import json

    from groupwise.cli.output import console
    from groupwise.diagnosis import diagnose
    from groupwise.runs import find_runs, read_run

    read = [read_run(path) for path in find_runs(runs, warm_ups=True)]
    findings_by_run = [diagnose(run.rows, run.config) for run in read]
    if as_json:
        typer.echo(
            json.dumps(
                {"runs": [_record(run, findings) for run, findings in zip(read, findings_by_run, strict=True)]},
                indent=2,
            )
        )
    else:
        for place, (run, findings) in enumerate(zip(read, findings_by_run, strict=True)):
            if place:
                console().print()
            _print(run, findings)
    if any(finding.holds and finding.severity != "note" for findings in findings_by_run for finding in findings):
        raise typer.Exit(FOUND)


def _record(run: Run, findings: list[Finding]) -> dict[str, Any]:
    """Returns a run as JSON-able values."""
    from groupwise.diagnosis import headline

    return {
        "run": str(run.path),
        "state": run.state,
        "steps": run.num_steps,
        "missing": list(run.remarks),
        "headline": None if (cause := headline(findings)) is None else cause.record(),
        "findings": [finding.record() for finding in findings],
        "not_judged": _not_judged(run),
    }


def _not_judged(run: Run) -> list[str]:
    """Rules none of whose metrics this run has."""
    from groupwise.diagnosis import RULES

    families = {
        "/".join(["rewards", "NAME", *name.split("/")[2:]]) if name.startswith("rewards/") else name
        for name in run.metrics
    }
    return [
        rule.name for rule in RULES if not families.intersection(name.replace("JUDGE", "NAME") for name in rule.reads)
    ]


def _print(run: Run, findings: list[Finding]) -> None:
    from rich.text import Text

    from groupwise.cli.output import console, counted
    from groupwise.diagnosis import WINDOW, headline

    out = console()
    out.print(Text(f"{run.path}: {run.name}, {run.num_steps} steps, {run.state}", style="bold"))
    for remark in run.remarks:
        _indented(2, f"missing: {remark}")
    if run.num_steps < WINDOW:
        _indented(2, f"Only {counted(run.num_steps, 'step')}; most rules judge the last {WINDOW} of a stage.")
    if (cause := headline(findings)) is not None:
        _indented(2, str(cause), style="bold")
        leading = [cause.cause, *cause.consequences]
        findings = [*leading, *(finding for finding in findings if finding not in leading)]
    for finding in findings:
        _finding(finding)
    alarms = sum(finding.severity != "note" for finding in findings)
    if not alarms and run.rows:
        _indented(2, f"Nothing wrong found in {len(run.rows)} rows.")
    if silent := _not_judged(run):
        _indented(2, f"Skipped: no metrics for {', '.join(silent)}.", style="dim")


def _finding(finding: Finding) -> None:
    stage = f" of stage {finding.stage}" if finding.stage else ""
    until = "and it holds to the end" if finding.holds else f"no longer after step {finding.last_step}"
    colour = {"fault": "bold red", "warning": "yellow", "note": "cyan"}[finding.severity]
    _indented(
        2, f"{finding.severity} {finding.rule}: seen from step {finding.first_step}{stage}, {until}", style=colour
    )
    _indented(4, finding.what)
    for series in finding.evidence:
        _indented(4, _evidence(series), style="dim")
    _indented(4, f"It means: {finding.means}")
    _indented(4, f"To do: {finding.advice}")


def _evidence(series: Series) -> str:
    """Writes a line of evidence: the metric, its steps, its mean, and some of its values."""
    places = (
        sorted({round(place * (len(series) - 1) / (_NUM_VALUES - 1)) for place in range(_NUM_VALUES)})
        if len(series)
        else []
    )
    values = " ".join(f"{series.values[place]:.3g}" for place in places)
    return (
        f"{series.metric}, steps {series.steps[0]} to {series.steps[-1]}: mean {series.mean:.3g} ({values})"
        if places
        else series.metric
    )


def _indented(width: int, text: str, style: str = "") -> None:
    """Writes a paragraph, broken at the terminal's width with its indentation kept."""
    import textwrap

    from rich.text import Text

    from groupwise.cli.output import console

    indent = " " * width
    for line in textwrap.wrap(
        text, max(console().width, 40), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    ):
        console().print(Text(line, style=style))
