"""Writes the golden runs anew: `python -m tests.golden_runs.record [DOMAIN ...]`, from the root of the repository."""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from pathlib import Path

import torch
from tests.golden_runs.runs import DOMAINS, golden_run, recorded

from groupwise.objective.preset import method_names

COMMAND = "python -m tests.golden_runs.record"


def record(domain: str) -> None:
    """All methods of one domain, in one file."""
    runs = {}
    for method in method_names():
        with tempfile.TemporaryDirectory() as folder:
            runs[method] = golden_run(domain, method, Path(folder))
    about = {
        "command": f"{COMMAND} {domain}",
        "torch": torch.__version__.partition("+")[0],
        "machine": platform.machine(),
    }
    lines = ",\n".join(f"    {json.dumps(method)}: {json.dumps(found)}" for method, found in runs.items())
    recorded(domain).write_text(
        f'{{\n  "about": {json.dumps(about)},\n  "runs": {{\n{lines}\n  }}\n}}\n', encoding="utf-8"
    )


if __name__ == "__main__":
    for each in sys.argv[1:] or DOMAINS:
        record(each)
