"""The command in a real pseudo-terminal: what it shows at two widths, and what Ctrl-C does."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pytest
from tests.experiment.tiny import TINY

LONG = (
    TINY.replace('console = "none"', 'console = "auto"')
    .replace("num_steps = 2\n", "num_steps = 2000\n")
    .replace("every = 1\n", "every = 1000\n")
)


def in_terminal(columns: int, *arguments: str, keys: list[tuple[str, str]]) -> tuple[str, int]:
    """Runs the command on a terminal, pressing keys once a text has appeared; returns what was shown and the status."""
    process, master = pty.fork()
    if process == 0:
        # A shell that runs tests in its background has it ignored, and what is started inherits that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.environ.update(TERM="xterm-256color", COLUMNS=str(columns), OMP_NUM_THREADS="1")
        os.execv(sys.executable, [sys.executable, "-m", "groupwise", *arguments])
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    shown, waiting, end = "", list(keys), time.monotonic() + 300
    while time.monotonic() < end:
        if select.select([master], [], [], 0.1)[0]:
            try:
                shown += os.read(master, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                break
        if waiting and waiting[0][0] in shown:
            os.write(master, waiting.pop(0)[1].encode())
    _, status = os.waitpid(process, 0)
    return shown, os.waitstatus_to_exitcode(status)


def lines(shown: str) -> list[str]:
    """What was shown, without colours and moves of the cursor."""
    return [line for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)) if line.strip()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "long.toml"
    path.write_text(LONG)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, pytest.param(40, marks=pytest.mark.nightly)])
def test_the_terminal_fits_its_width_and_ctrl_c_ends_the_run(columns: int, file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shown, status = in_terminal(
        columns, "train", str(file), "--out", str(run), "--no-controls", keys=[("! all_flat", "\x03")]
    )
    # 128 and the signal: what a shell says of a program that Ctrl-C ended.
    assert status == 130
    text = lines(shown)
    bars = [line for line in text if "/2003" in line]
    assert max(len(line) for line in bars) <= columns
    assert any(re.search(r"step .*\d+/2003 \d:\d\d:\d\d left", line) for line in bars)
    assert any(re.search(r"^  reward \d\.\d{3}", line) for line in text)
    assert any(re.search(r"held-out greedy/\w+ \d\.", line) for line in text)
    assert any("! all_flat (groupwise doctor)" in line for line in text)
    plain = " ".join(line.strip() for line in text)
    assert "ending after this step, with a checkpoint; Ctrl-C again ends at once" in plain
    assert "\x1b[?25h" in shown, "the cursor is given back"
    saved = max(int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*"))
    assert saved > 3
    assert f"ended at step {saved}; `groupwise resume" in plain
    assert not (run / "summary.json").exists()


@pytest.mark.slow
def test_a_second_ctrl_c_ends_at_once(file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shown, status = in_terminal(
        80, "train", str(file), "--out", str(run), keys=[("  reward", "\x03"), ("once more", "\x03")]
    )
    assert status != 0
    # Of its two thousand steps it made no more than those under way.
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert max(steps) < 1000
    assert not (run / "summary.json").exists()
    assert "Traceback" not in shown
    assert "\x1b[?25h" in shown
