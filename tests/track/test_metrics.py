"""`metrics.jsonl` holds whole rows and nothing else, whatever happens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from groupwise.track import MetricsFile, read_metrics


def test_rows_are_strict_json(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m.jsonl")
    file.append({"step": 1, "kl": float("inf"), "reward": 0.1})
    assert json.loads((tmp_path / "m.jsonl").read_text(), parse_constant=lambda _: 1 / 0) == {"step": 1, "kl": None, "reward": 0.1}


def test_half_a_line_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"step": 1}\n{"step": 2')
    assert list(read_metrics(tmp_path / "m.jsonl")) == [{"step": 1}]


def test_a_full_disk_leaves_whole_rows(tmp_path: Path) -> None:
    code = (
        "import pathlib, resource, signal, sys\n"
        "from groupwise.track import MetricsFile\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "file = MetricsFile(pathlib.Path(sys.argv[1]))\n"
        "file.append({'step': 1})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))\n"
        "try:\n"
        "    file.append({'step': 2, 'long': 'x' * 100})\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "m.jsonl")], capture_output=True, text=True, check=True)
    assert done.stdout == "File too large\n"
    assert (tmp_path / "m.jsonl").read_text() == '{"step": 1}\n'
