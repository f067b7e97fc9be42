"""What the doctor and the report take of long runs, and how it grows with their steps.

    python benchmarks/doctor.py RUN

`RUN` is the folder of a finished run. It is copied, and the rows of its last stage are repeated up to the steps that
are measured. Every command runs in a process of its own; CPU seconds are those of the whole process, with the second
or so that Python takes to start.
"""

from __future__ import annotations

import itertools
import json
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from machine import describe
from rich.console import Console
from rich.table import Table

STEPS = (1_000, 10_000, 100_000)
REPORTED_STEPS, REPORTED_RUNS = 20_000, 10
RESULTS = Path(__file__).parent / "results" / "doctor.json"


def lengthened(run: Path, folder: Path, num_steps: int) -> Path:
    """Copies a run and repeats the rows of its last stage until it has `num_steps` steps."""
    shutil.copytree(run, folder)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last_stage = [row for row in rows if row.get("stage") == rows[-1].get("stage") and row["step"] > rows[0]["step"]]
    first = last_stage[0]["step"]
    with (folder / "metrics.jsonl").open("w") as file:
        for row in rows:
            if row["step"] < first:
                file.write(json.dumps(row) + "\n")
        for step, row in zip(range(first, num_steps + 1), itertools.cycle(last_stage), strict=False):
            file.write(json.dumps({**row, "step": step}) + "\n")
    return folder


def cpu_seconds(arguments: Sequence[str]) -> float:
    """Returns the CPU seconds of one `groupwise` command, user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "groupwise", *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(run: Annotated[Path, typer.Argument(help="The folder of a finished run.")]) -> None:
    """Measures, prints a table and writes `results/doctor.json`."""
    table = Table("command", "runs", "steps of each", "CPU s")
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for steps in STEPS:
            long_run = lengthened(run, folder / f"doctor-{steps}", steps)
            rows.append(
                {"command": "doctor", "runs": 1, "steps": steps, "cpu_seconds": cpu_seconds(["doctor", str(long_run)])}
            )
            shutil.rmtree(long_run)
        runs = [str(lengthened(run, folder / f"report-{place}", REPORTED_STEPS)) for place in range(REPORTED_RUNS)]
        seconds = cpu_seconds(["report", *runs, "--out", str(folder / "page.html")])
        rows.append({"command": "report", "runs": REPORTED_RUNS, "steps": REPORTED_STEPS, "cpu_seconds": seconds})
    for row in rows:
        table.add_row(str(row["command"]), str(row["runs"]), f"{row['steps']:,}", f"{row['cpu_seconds']:.1f}")
    Console().print(table)
    RESULTS.write_text(json.dumps({"machine": describe(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
