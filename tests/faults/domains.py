"""Runs of a whole domain from a table, killed for real at a call of one of its methods."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.faults.processes import fatal, in_a_process

from groupwise.checkpoint import load_tree
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import resume, run
from groupwise.track import depends_on_machine, read_metrics


def generators(path: Path) -> Any:
    """The states of the global generators in the newest checkpoint: what code of a user's would draw from."""
    newest = max((path / "checkpoints").glob("step-*"), key=lambda each: int(each.name.removeprefix("step-")))
    return load_tree(newest)["generators"]


def everything(path: Path) -> dict[str, Any]:
    """The files and metrics of a finished run, without times and memory."""
    summary = json.loads((path / "summary.json").read_text())
    del summary["seconds"]
    files = [file for part in ("model", "rollouts") for file in sorted((path / part).rglob("*")) if file.is_file()]
    return {
        "files": {str(file.relative_to(path)): file.read_bytes() for file in files},
        "metrics": [
            {name: value for name, value in row.items() if not depends_on_machine(name)}
            for row in read_metrics(path / "metrics.jsonl")
        ],
        "summary": summary,
        "checkpoints": sorted(entry.name for entry in (path / "checkpoints").iterdir()),
        "generators": generators(path),
    }


def start(path: Path, table: Path, domain: type | None = None, point: str = "", number: int = 0) -> None:
    """Runs a table; with a domain's class, its process is killed in the `number`-th call of its method `point`."""
    if domain is not None:
        setattr(domain, point, fatal(getattr(domain, point), number))
    run(load_experiment(table, run_code=True), path)


def untouched(table: dict[str, Any], folder: Path) -> tuple[Path, dict[str, Any]]:
    """The table as a file, and what its run leaves when nobody disturbs it."""
    file = folder / "experiment.json"
    file.write_text(json.dumps(table))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GROUPWISE_CACHE", str(folder / "cache"))
        assert in_a_process(start, folder / "run", file) == 0
    return file, everything(folder / "run")


def killed_and_resumed(file: Path, folder: Path, domain: type, point: str, number: int) -> dict[str, Any]:
    """The result of a run that is killed at that call and then resumed, with a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GROUPWISE_CACHE", str(folder / "cache"))
        assert in_a_process(start, folder / "run", file, domain, point, number) == -9
        assert in_a_process(partial(resume, run_code=True), folder / "run") == 0
    return everything(folder / "run")
