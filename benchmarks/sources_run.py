"""One run of `sources.py`: its command as a process, and a line for each claim that it measures."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from command import GROUPWISE, call, cpu_seconds, environment, failure
from machine import describe
from seeds_run import fingerprint
from sources_claims import HERE, Claim, Run, claims, experiment_of
from sources_read import Outcome


def identity(run: Run, claim: Claim) -> str:
    """Returns twelve digits of what a result depends on: the command, the experiment's file and where it is read."""
    parts = [run.command, run.then, fingerprint(experiment_of(run)), claim.read, claim.minus, claim.scale]
    return _digits(parts)


def place(run: Run, claim: Claim) -> tuple[str, str]:
    """Returns what a line is found by."""
    return claim.id, identity(run, claim)


def current(runs: Iterable[Run], lines: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Returns the last line of each claim that was measured by the command and the experiment as they are now.

    Args:
        runs: with the claims.
        lines: of `sources.jsonl`.
    """
    places = {place(run, claim) for run in runs for claim in claims(run)}
    return {line["claim"]: line for line in lines if (line["claim"], line["config"]) in places}


def missing(run: Run, lines: Mapping[str, Mapping[str, Any]]) -> bool:
    """Returns whether a run is to be made: it has a claim without a line, or the last try met its deadline."""
    rows = [lines.get(claim.id) for claim in claims(run)]
    return any(row is None or row["exit"] is None for row in rows)


def measured(
    source: str, run: Run, folder: Path, seconds: float, *, keep: bool, python: str = sys.executable
) -> list[dict[str, Any]]:
    """Makes a run, or goes on with the one that was cut off, and returns a line for each of its claims.

    Args:
        source: `000` to `004`.
        run: the command.
        folder: of the run; an ended run's folder is taken away.
        seconds: deadline, wall time.
        keep: the folder stays.
        python: interpreter that runs the command.
    """
    folder = folder.with_name(f"{folder.name}-{_digits([run.command, fingerprint(experiment_of(run))])}")
    variables = environment(folder.with_name("cache"))
    row: dict[str, Any] = {
        "source": source,
        "run": run.id,
        "command": run.command,
        "date": time.strftime("%Y-%m-%d"),
        "code": code_of(python),
        "machine": describe(),
    }
    begin, used = time.monotonic(), cpu_seconds()
    words = _words(run, folder)
    status, output = call([*GROUPWISE, *words], variables, seconds, python=python)
    if words[0] == "resume" and status not in (0, None):
        # What was cut off cannot be gone on with, for example because the code is another one by now.
        shutil.rmtree(folder)
        status, output = call([*GROUPWISE, *_words(run, folder)], variables, seconds, python=python)
    error = failure(status, output, seconds)
    outcome: Outcome | None = None
    if status == 0:
        outcome, error = _outcome(run, folder, variables, seconds)
    row |= {"exit": status, "cpu_seconds": round(cpu_seconds() - used, 1)}
    row["seconds"] = round(time.monotonic() - begin, 1)
    rows = [
        row | {"claim": claim.id, "config": identity(run, claim)} | _result(claim, outcome, error)
        for claim in claims(run)
    ]
    if status is not None and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return rows


def _words(run: Run, folder: Path) -> list[str]:
    """Returns the command's words with the run's folder: a comparison goes on by itself, a cut-off run is resumed."""
    words = shlex.split(run.command)[1:]
    folder.parent.mkdir(parents=True, exist_ok=True)
    if words[0] == "train" and folder.is_dir():
        if any((folder / "checkpoints").glob("*")) and not (folder / "summary.json").is_file():
            return ["resume", str(folder)]
        shutil.rmtree(folder)
    return [*words, "--out", str(folder)]


def _outcome(run: Run, folder: Path, variables: dict[str, str], seconds: float) -> tuple[Outcome | None, str]:
    printed = ""
    if run.then is not None:
        script = str(HERE / shlex.split(run.then)[1].removeprefix("benchmarks/"))
        status, printed = call([script, str(folder)], variables, seconds)
        if status != 0:
            return None, failure(status, printed, seconds)
    try:
        return Outcome(folder, printed), ""
    except (OSError, ValueError, KeyError) as error:
        return None, f"the run's folder cannot be read: {error}"[:300]


def with_seeds(run: Run, seeds: int) -> Run:
    """Returns a comparison over as many seeds, beginning with the same one; a training as it is."""
    command = run.command.replace("--seeds 1", f"--seeds {seeds}")
    return (
        run if command == run.command else run.model_copy(update={"command": command, "minutes": run.minutes * seeds})
    )


def _result(claim: Claim, outcome: Outcome | None, error: str) -> dict[str, Any]:
    if outcome is None:
        return {"result": None, "error": error}
    try:
        result: dict[str, Any] = {"result": round(outcome.measure(claim), 7)}
        if claim.interval is not None and claim.read[-2:] == ("difference", "mean"):
            variant = str(claim.read[0])
            if isinstance(row := outcome.scores.get(variant), dict) and len(row.get("seeds", ())) > 1:
                result["interval"] = [row["difference"][edge] for edge in ("low", "high")]
        return result
    except (OSError, ValueError, KeyError) as reason:
        return {"result": None, "error": str(reason)[:300]}


def _digits(parts: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def code_of(python: str) -> str:
    """Returns the version of the package that an interpreter runs, and in a checkout its commit, marked `dirty` where
    files were changed since.

    Args:
        python: path of the interpreter.
    """
    program = "import groupwise, importlib.metadata as m; print(m.version('groupwise'), groupwise.__file__)"
    printed = subprocess.run([python, "-c", program], text=True, capture_output=True, check=True).stdout
    version, _, file = printed.strip().partition(" ")
    git = ["git", "-C", str(Path(file).parent), "describe", "--always", "--dirty", "--exclude", "*"]
    commit = subprocess.run(git, text=True, capture_output=True) if shutil.which("git") else None
    return f"{version} ({commit.stdout.strip()})" if commit is not None and commit.returncode == 0 else version


def cheapest(runs: Iterable[tuple[str, Run]]) -> Sequence[tuple[str, Run]]:
    """Returns runs with their sources, the cheapest first."""
    return sorted(runs, key=lambda pair: pair[1].minutes)
