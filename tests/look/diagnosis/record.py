"""Keeps what the rules read of a healthy run, for tests: `python -m tests.look.diagnosis.record RUN NAME "COMMAND"`.

Every step of a stage that samples is kept and every eighth of one that does not; of the metrics, those that a rule
reads; of the numbers, five digits.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from groupwise.runs import read_run
from groupwise_look.diagnosis import RULES

FOLDER = Path(__file__).with_name("recorded")
_READ = [
    re.sub("NAME|JUDGE", ".+" if name.startswith("eval/") else "[^/]+", name)
    for rule in RULES
    for name in (*rule.reads, "rewards/NAME/mean")
]


def is_read(metric: str) -> bool:
    """Whether a rule reads it."""
    return any(re.fullmatch(pattern, metric) for pattern in _READ)


def record(folder: Path, command: str) -> dict[str, Any]:
    """The run by columns; absent values are null."""
    run = read_run(folder)
    rows = [
        row
        for place, row in enumerate(run.rows)
        if "reward" in row or place % 8 == 0 or any(name.startswith("eval/") for name in row)
    ]
    rewards = run.config["domain"]["rewards"]
    names = [
        name
        for name in run.metrics
        if is_read(name) and (not name.startswith("eval/") or name.rpartition("/")[2] in rewards)
    ]
    names += [name for name in run.metrics if re.fullmatch("eval/[^/]+/reward", name)]
    objective = run.config["objective"]
    return {
        "command": command,
        "rows_of_the_run": len(run.rows),
        "objective": {slot: objective[slot] for slot in ("advantage", "ratio", "trust")},
        "roles": {name: reward["role"] for name, reward in rewards.items()},
        "step": [row["step"] for row in rows],
        "stage": [row["stage"] for row in rows],
        "metrics": {
            name: [None if row.get(name) is None else float(f"{row[name]:.5g}") for row in rows] for name in names
        },
    }


def recorded(name: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows as `metrics.jsonl` would hold them, and the configuration as far as rules read it."""
    kept = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    columns = {"step": kept["step"], "stage": kept["stage"], **kept["metrics"]}
    rows = [
        {metric: values[place] for metric, values in columns.items() if values[place] is not None}
        for place in range(len(kept["step"]))
    ]
    return rows, {
        "objective": kept["objective"],
        "domain": {"rewards": {name: {"role": role} for name, role in kept["roles"].items()}},
    }


if __name__ == "__main__":
    source, name, command = sys.argv[1:]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(record(Path(source), command)) + "\n", encoding="utf-8")
