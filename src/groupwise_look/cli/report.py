"""`groupwise report`: one page about one run or several, figures and tables."""

from __future__ import annotations

import json
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupwise.cli.output import console, counted, print_text
from groupwise.config import ConfigError
from groupwise.config.tables import visible

if TYPE_CHECKING:
    from groupwise.runs import Run
    from groupwise_look.diagnosis import Finding, Findings, Series
    from groupwise_look.report import Variant
    from groupwise_look.report.tables import Judged


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Run folders, finished or not, or the folder of a comparison; metrics files of TRL, verl, prime-rl or"
            " W&B (CSV).",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The page.", show_default="report.html in the folder named, or here where there are several"),
    ] = None,
    figures: Annotated[
        bool,
        typer.Option(
            "--figures", help="Write figures beside the page: variance reduction, beta, stability, gains (PDF and PNG)."
        ),
    ] = False,
    table: Annotated[
        bool,
        typer.Option("--table", help="Write the table of results beside the page (Markdown and LaTeX), and print it."),
    ] = False,
    groups: Annotated[int, typer.Option(min=1, max=10**6, help="Groups of a run that the page holds at most.")] = 300,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve", help="Serve the page to this machine and keep it up to date, until Ctrl-C; writes no file."
        ),
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of --serve.", show_default="any that is free")
    ] = None,
) -> None:
    """Make one HTML page about runs: curves, findings, and the groups with their members. It opens from disk, without a
    network.

    Runs that differ by their seed alone are drawn as one variant, with their spread.
    """
    if serve:
        for option, is_set in (("--out", out is not None), ("--figures", figures), ("--table", table)):
            if is_set:
                raise ConfigError(
                    f"--serve and {option} exclude each other: a served page is not written; leave one out"
                )
        if files := [path for path in runs if path.is_file()]:
            raise ConfigError(f"--serve follows run folders, and {files[0]} is a file; leave --serve out")
        _serve(runs, port or 0, groups)
        return
    if port is not None:
        raise ConfigError(f"--port {port}: nothing is served without --serve; add --serve, or leave --port out")
    folder = Path() if len(runs) > 1 else runs[0] if runs[0].is_dir() else runs[0].parent
    _write(runs, out or folder / "report.html", figures, table, groups)


def _write(runs: list[Path], out: Path, figures: bool, table: bool, groups: int) -> None:
    """Writes the page, with the figures and the table that are asked for in addition."""
    from groupwise_look.foreign import read_runs
    from groupwise_look.report import group_runs, write_figures, write_page, write_tables

    read = read_runs(runs)
    for run in read:
        for remark in run.remarks:
            print_text(f"{run.path}: {remark}")
    page = write_page(read, out, most_groups=groups)
    print_text(
        f"{len(read)} run{'s' if len(read) > 1 else ''}: {page} ({page.stat().st_size / 1e6:.1f} MB);"
        " open it in a browser"
    )
    variants = group_runs(read)
    if figures:
        written, left_out = write_figures(variants, out.parent / "figures")
        lines = [f"figure: {path}" for path in written if path.suffix == ".pdf"]
        for line in [*lines, *(f"no figure {reason}" for reason in left_out)]:
            print_text(line)
    if table:
        markdown, latex = write_tables(variants, out.parent, _judged(variants))
        console().print(visible(markdown.read_text(encoding="utf-8")), markup=False, emoji=False)
        print_text(f"table: {markdown} and {latex}")


def _judged(variants: list[Variant]) -> dict[str, Judged]:
    """Returns the differences from the first variant as `groupwise compare` judges them; none where that has no
    finished run.
    """
    from groupwise_look.compare.comparison import compare
    from groupwise_look.compare.grids import Cell
    from groupwise_look.compare.grids import Variant as Changes
    from groupwise_look.report.tables import Judged

    runs = [(variant.name, run) for variant in variants for run in variant.runs]
    comparison = compare([Cell(Changes((name,)), run.seed, run.path) for name, run in runs if run.seed is not None])
    if comparison is None or comparison.rows[0].variant != variants[0].name:
        return {}
    return {
        row.variant: Judged(row.difference.low, row.difference.high, row.p_value, row.distinguishable)
        for row in comparison.rows
        if row.difference is not None
    }


def _serve(runs: list[Path], port: int, groups: int) -> None:
    """Serves the page until the process is interrupted."""
    from groupwise_look.report.serve import HOST, LivePage, serve

    with serve(LivePage(runs, most_groups=groups), port) as server:
        address = f"http://{HOST}:{server.server_port}/"
        print_text(f"{address} follows the runs; open it in a browser on this machine, Ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            server.serve_forever()


# `groupwise doctor`: what the rules see in runs, what shows it, what it means, and what to set.

FOUND = 3
"""The exit status if a fault or a warning holds at the end of a stage."""

_NUM_VALUES = 6


def doctor(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Run folders, finished or not, or folders of runs; metrics files of TRL, verl, prime-rl or W&B (CSV).",
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object, with the evidence of every finding.")
    ] = False,
) -> None:
    """Say what is wrong with runs, from their metrics: what shows it, what it means, what to set.

    Ends with 0 where nothing is wrong, 3 where a fault or a warning holds at the end of a stage, 2 where there is no
    run to read.
    """
    from groupwise_look.diagnosis import diagnose
    from groupwise_look.foreign import read_runs

    read = read_runs(runs, warm_ups=True)
    findings_by_run = [diagnose(run.rows, run.config) for run in read]
    if as_json:
        typer.echo(json.dumps({"runs": list(map(_record, read, findings_by_run))}, indent=2))
    else:
        for place, (run, findings) in enumerate(zip(read, findings_by_run, strict=True)):
            if place:
                console().print()
            _print(run, findings)
    if any(finding.holds and finding.severity != "note" for findings in findings_by_run for finding in findings):
        raise typer.Exit(FOUND)


def _record(run: Run, findings: Findings) -> dict[str, Any]:
    """Returns a run as JSON-able values."""
    return {
        "run": str(run.path),
        "state": run.state,
        "steps": run.num_steps,
        "missing": list(run.remarks),
        "headline": None if findings.headline is None else findings.headline.record(),
        "findings": [finding.record() for finding in findings],
        "not_judged": _not_judged(run),
    }


def _not_judged(run: Run) -> list[str]:
    """Rules none of whose metrics this run has."""
    from groupwise_look.diagnosis import RULES

    families = {
        "/".join(["rewards", "NAME", *name.split("/")[2:]]) if name.startswith("rewards/") else name
        for name in run.metrics
    }
    return [
        rule.name for rule in RULES if not families.intersection(name.replace("JUDGE", "NAME") for name in rule.reads)
    ]


def _print(run: Run, findings: Findings) -> None:
    from groupwise_look.diagnosis import WINDOW

    console().print(
        f"{run.path}: {run.name}, {run.num_steps} steps, {run.state}", style="bold", markup=False, emoji=False
    )
    for remark in run.remarks:
        _indented(2, f"missing: {remark}")
    if run.num_steps < WINDOW:
        _indented(2, f"Only {counted(run.num_steps, 'step')}; most rules judge the last {WINDOW} of a stage.")
    if findings.headline is not None:
        _indented(2, str(findings.headline), style="bold")
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
    seen = f"{finding.severity} {finding.rule}: seen from step {finding.first_step}{stage}, {until}"
    _indented(2, seen, style=colour)
    _indented(4, finding.what)
    for series in finding.evidence:
        _indented(4, _evidence(series), style="dim")
    _indented(4, f"It means: {finding.means}")
    _indented(4, f"To do: {finding.advice}")


def _evidence(series: Series) -> str:
    """Writes a line of evidence: the metric, its steps, its mean, and some of its values."""
    if not len(series):
        return series.metric
    places = sorted({round(place * (len(series) - 1) / (_NUM_VALUES - 1)) for place in range(_NUM_VALUES)})
    values = " ".join(f"{series.values[place]:.3g}" for place in places)
    return f"{series.metric}, steps {series.steps[0]} to {series.steps[-1]}: mean {series} ({values})"


def _indented(width: int, text: str, style: str = "") -> None:
    """Writes a paragraph, broken at the terminal's width with its indentation kept."""
    indent = " " * width
    for line in textwrap.wrap(
        text, max(console().width, 40), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    ):
        console().print(line, style=style, markup=False, emoji=False)
