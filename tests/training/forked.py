"""Processes that meet, forked from one that has imported what they need: importing takes longer than they train."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 3600
"""Seconds that processes may take for all that they do; they only end a test that hangs."""


def launch_forked(module: str, size: int, folder: Path, *arguments: str) -> None:
    """Runs `python -m MODULE FOLDER ARGUMENTS`, which calls `fork`, in `size` processes; all have to end well."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    with (folder / "errors.txt").open("w+", encoding="utf-8") as errors:
        parent = subprocess.Popen(
            [sys.executable, "-m", module, str(folder), *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths, "WORLD_SIZE": str(size)},
            stderr=errors,
            start_new_session=True,
        )
        try:
            status = parent.wait(DEADLINE)
        finally:
            # Where one process fails, the other would wait for it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)
            parent.wait()
        assert status == 0, (folder / "errors.txt").read_text(encoding="utf-8")[-3000:]


def fork() -> None:
    """Returns in each of WORLD_SIZE children, with RANK set. The parent waits for them, and ends here as the first that
    fails.
    """
    children = set()
    for rank in range(int(os.environ["WORLD_SIZE"])):
        if not (child := os.fork()):
            os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
            return
        children.add(child)
    while children:
        child, status = os.wait()
        if status:
            os._exit(1)
        children.remove(child)
    os._exit(0)
