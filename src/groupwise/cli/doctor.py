"""`groupwise doctor`: what the rules see in a run, and what to try."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def doctor(run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, finished or not.")]) -> None:
    """Say what is wrong with a run, from its metrics, and what to change."""
    from groupwise.cli.output import console
    from groupwise.cli.run_folder import require_run
    from groupwise.diagnosis import WINDOW, diagnose
    from groupwise.track.metrics import read_metrics

    require_run(run)
    rows = list(read_metrics(run / "metrics.jsonl")) if (run / "metrics.jsonl").is_file() else []
    if len(rows) < WINDOW:
        console().print(f"{run} has {len(rows)} steps; the rules judge the last {WINDOW}.")
    findings = diagnose(rows)
    for finding in findings:
        console().print(f"{finding.rule} (step {finding.step})", style="bold")
        console().print(f"  {finding.what}\n  {finding.advice}", markup=False)
    if not findings and len(rows) >= WINDOW:
        console().print(f"Nothing found in {len(rows)} rows of {run / 'metrics.jsonl'}.")
