"""Runs what CI cannot wait for, in parts that need not be repeated: `make nightly`.

A part that passed is left out until the code changes: after an interruption the command goes on where it ended. Logs
and results lie in `.cache/nightly/`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".cache" / "nightly"
PYTEST = [sys.executable, "-m", "pytest", "-q", "--durations=10"]
MARKED = [*PYTEST, "-m", "(slow or nightly) and not gpu", "--dist", "worksteal", "-n"]
NUMERIC = [
    *("objective", "causal_lm", "domain", "images", "selection", "tinker", "integration", "integrations", "reference"),
    *("reward", "training"),
]
SERVERS = ["tests/causal_lm/engine", "tests/tinker"]
"""The folders whose tests start a real vLLM or Tinker server."""


def parts(workers: str, servers: bool) -> dict[str, list[str]]:
    """Returns the command of each part, by its name."""
    rooms = ["tests/domain", "tests/images", "tests/training", "tests/integration"]
    others = [*(f"--ignore={path}" for path in [*rooms, *SERVERS]), "tests", "src"]
    chosen = {name.partition("/")[2]: [name, *(f"--ignore={path}" for path in SERVERS)] for name in rooms}
    tests = {name: [*MARKED, workers, *where] for name, where in {**chosen, "others": others}.items()}
    # One server after the other: each takes both cores.
    tests["servers"] = [*MARKED, "0", *SERVERS]
    if not servers:
        del tests["servers"]
    portable = ["make", "portable", f"WORKERS={workers}"]
    return {
        **tests,
        "portable": [*portable, f"NUMERIC={' '.join(f'tests/{name}' for name in NUMERIC)}"],
        "portable_runs": [*portable, "NUMERIC=tests/golden_runs", 'ARGS=-m "not timing and not gpu"'],
        "isolation": ["make", "isolation", f"WORKERS={workers}"],
        "mutations": ["make", "mutations"],
    }


def code() -> str:
    """Returns a name of the code as it lies here: the commit's trees and what differs from them."""
    places = ["src", "tests", "examples", "benchmarks", "pyproject.toml", "constraints.txt"]
    shown = [["git", "ls-files", "-s", *places], ["git", "diff", "HEAD", "--", *places]]
    text = b"".join(subprocess.run(each, cwd=ROOT, capture_output=True, check=True).stdout for each in shown)
    return hashlib.sha256(text).hexdigest()[:12]


def run(name: str, command: list[str]) -> dict[str, object]:
    """Runs a part, shows its last lines and returns its result."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    log = FOLDER / f"{name}.log"
    # The make below this one would take the ARGS that were meant for this program.
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "ARGS")}
    with log.open("w", encoding="utf-8") as file:
        status = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False
        ).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = log.read_text(encoding="utf-8").splitlines()
    said = [line for line in lines if re.search(r"\d+ (passed|failed|seen)", line)]
    cpu = sum(getattr(after, key) - getattr(before, key) for key in ("ru_utime", "ru_stime"))
    if status:
        print("\n".join(line for line in lines if line.startswith(("FAILED", "ERROR"))), flush=True)
    return {
        "passed": status == 0,
        "seconds": round(time.monotonic() - began),
        "cpu_seconds": round(cpu),
        "said": said[-1].strip("= ") if said else f"exit status {status}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="a part, by its name; may be given several times")
    parser.add_argument("--again", action="store_true", help="also run the parts that passed on this code")
    parser.add_argument("--workers", default="2")
    parser.add_argument(
        "--no-servers", action="store_true", help="without the real servers (`make engines` builds them)"
    )
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept, now = FOLDER / "results.json", code()
    results = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    chosen = parts(options.workers, not options.no_servers)
    if unknown := set(options.only or ()) - set(chosen):
        parser.error(f"no part is called {', '.join(sorted(unknown))}; the parts are {', '.join(chosen)}")
    for name in options.only or chosen:
        if options.again or not (results.get(name, {}).get("passed") and results[name]["code"] == now):
            print(f"{name} ... (its log: {FOLDER / name}.log)", flush=True)
            results[name] = {"code": now, **run(name, chosen[name])}
            kept.write_text(json.dumps(results, indent=1), encoding="utf-8")
        row = results[name]
        verdict = "passed" if row["passed"] else "FAILED"
        print(f"{name:12} {verdict}  {row['seconds']:5} s  {row['cpu_seconds']:5} CPU s  {row['said']}", flush=True)
    rows = [results[name] for name in options.only or chosen]
    failed = sum(not row["passed"] for row in rows)
    print(f"{len(rows)} parts of code {now}, {sum(row['seconds'] for row in rows)} s, {failed} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
