"""One run of `seeds.py`: `groupwise train NAME seed=S` as a process, and what is kept of it."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from machine import describe

from groupwise.config import read_json
from groupwise.experiment.catalogue import find
from groupwise.experiment.comparison import evaluated


def fingerprint(name: str) -> str:
    """What an experiment's file sets, in twelve digits; its name, its description and its grid change no run.

    Args:
        name: of a shipped experiment, or its file.
    """
    tree = {key: value for key, value in find(name).tree.items() if key not in ("name", "description", "comparison")}
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
    environment = {
        **os.environ,
        "GROUPWISE_CACHE": str(cache.resolve()),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
        "TOKENIZERS_PARALLELISM": "false",
    }
    begin, used = time.monotonic(), _cpu_seconds()
    row["exit"], said = _called(["train", name, f"seed={seed}", "--out", str(folder)], environment, seconds)
    row |= {"cpu_seconds": round(_cpu_seconds() - used, 1), "seconds": round(time.monotonic() - begin, 1)}
    if row["exit"] != 0:
        row["error"] = (
            f"did not end within {seconds:g} s"
            if row["exit"] is None
            else (said.strip().splitlines() or [""])[-1][:300]
        )
    row |= _ends(folder) if (folder / "summary.json").is_file() else {}
    if (folder / "metrics.jsonl").is_file():
        row["doctor_exit"], told = _called(["doctor", str(folder), "--json"], environment, 600)
        row["findings"] = [
            finding["rule"]
            for finding in json.loads(told)["runs"][0]["findings"]
            if finding["holds"] and finding["severity"] != "note"
        ]
    shutil.rmtree(cache, ignore_errors=True)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return row


def _called(words: list[str], environment: dict[str, str], seconds: float) -> tuple[int | None, str]:
    """Exit status, none past the deadline, and what was said; nothing of the command outlives this call."""
    command = [sys.executable, "-c", "from groupwise.cli import main; main()", *words]
    process = subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        said, _ = process.communicate(timeout=seconds)
        return process.returncode, said
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _ends(folder: Path) -> dict[str, Any]:
    """Scores before and after, and those of the controls with how much the run is above them."""
    summary = read_json(folder / "summary.json")
    controls = {}
    for path in sorted((folder / "controls").glob("*/summary.json")):
        name, above = path.parent.name, summary.get("controls", {})
        controls[name] = {
            "end": _rounded(evaluated(path.parent, "after")),
            "above": above.get(name, {}),
            "steps": read_json(path)["steps"],
        }
    ends = {"start": _rounded(evaluated(folder, "before")), "end": _rounded(evaluated(folder, "after"))}
    return {**{key: summary[key] for key in ("metric", "before", "after", "steps")}, **ends, "controls": controls}


def _rounded(metrics: Any) -> dict[str, float]:
    return {name: round(value, 5) for name, value in metrics.items()}


def _cpu_seconds() -> float:
    """Of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
