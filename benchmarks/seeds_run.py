"""One run of `seeds.py`: `groupwise train NAME seed=S` as a process, and what is kept of it."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import Any

from command import GROUPWISE, call, cpu_seconds, environment, failure
from machine import describe

from groupwise.config import read_json
from groupwise.experiment.catalogue import find
from groupwise_look.compare.comparison import evaluated


def fingerprint(name: str) -> str:
    """What an experiment's file sets, in twelve digits; its name, its description, its grid and what it writes down
    change no run.

    Args:
        name: of a shipped experiment, or its file.
    """
    about = ("name", "description", "comparison", "track")
    tree = {key: value for key, value in find(name).tree.items() if key not in about}
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:12]


def measured(name: str, seed: int, folder: Path, seconds: float, *, keep: bool) -> dict[str, Any]:
    """One run with its controls: what its line says.

    Args:
        name: of the experiment.
        seed: of the run.
        folder: of the run; what an earlier try left there is taken away.
        seconds: its deadline, wall time.
        keep: whether the folder stays.
    """
    cache = folder.with_name(f"{folder.name}-cache")
    for left in (folder, cache):
        shutil.rmtree(left, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    row: dict[str, Any] = {
        "experiment": name,
        "seed": seed,
        "config": fingerprint(name),
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe(),
    }
    variables = environment(cache)
    begin, used = time.monotonic(), cpu_seconds()
    words = ["train", name, f"seed={seed}", "--out", str(folder)]
    row["exit"], output = call([*GROUPWISE, *words], variables, seconds)
    row |= {"cpu_seconds": round(cpu_seconds() - used, 1), "seconds": round(time.monotonic() - begin, 1)}
    if row["exit"] != 0:
        row["error"] = failure(row["exit"], output, seconds)
    row |= ends(folder) if (folder / "summary.json").is_file() else {}
    if (folder / "metrics.jsonl").is_file():
        row["doctor_exit"], row["findings"] = diagnosed(folder, variables)
    shutil.rmtree(cache, ignore_errors=True)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return row


def diagnosed(folder: Path, variables: dict[str, str]) -> tuple[int | None, list[str]]:
    """Returns the exit status of `groupwise doctor` and the rules that hold, without notes.

    Args:
        folder: of the run.
        variables: environment of the command.
    """
    status, output = call([*GROUPWISE, "doctor", str(folder), "--json"], variables, 600)
    findings = json.loads(output)["runs"][0]["findings"]
    return status, [row["rule"] for row in findings if row["holds"] and row["severity"] != "note"]


def ends(folder: Path) -> dict[str, Any]:
    """Returns the scores before and after, and those of the controls with how much the run is above them.

    Args:
        folder: of a run that ended.
    """
    summary = read_json(folder / "summary.json")
    controls = {}
    for path in sorted((folder / "controls").glob("*/summary.json")):
        name, above = path.parent.name, summary.get("controls", {})
        controls[name] = {
            "end": _rounded(evaluated(path.parent, "after")),
            "above": above.get(name, {}),
            "steps": read_json(path)["steps"],
        }
    scores = {"start": _rounded(evaluated(folder, "before")), "end": _rounded(evaluated(folder, "after"))}
    return {**{key: summary[key] for key in ("metric", "before", "after", "steps")}, **scores, "controls": controls}


def _rounded(metrics: Any) -> dict[str, float]:
    return {name: round(value, 5) for name, value in metrics.items()}
