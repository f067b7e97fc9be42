"""The script for a cluster's queue on docs/guide/distributed.md, run with a queue and a launcher that are played."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from torch.distributed.run import get_args_parser

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "distributed.md"
SCRIPT = re.search(r'```bash title="train\.sbatch"\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL)
PLAYED = {
    "scontrol": 'case "$1" in show) echo one; echo two ;; requeue) echo "$2" >> requeued ;; esac',
    "srun": 'echo "$@" >> started; eval "$PLAY"; exit 1',
}


def tries(folder: Path, play: str) -> int:
    """Starts the script again as often as it asks for it, ten times at most; returns how often it was started."""
    assert SCRIPT is not None
    for name, lines in PLAYED.items():
        command = folder / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(f"#!/bin/bash\n{lines}\n")
        command.chmod(0o755)
    (folder / "train.sbatch").write_text(SCRIPT.group(1))
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PLAY": play,
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_NNODES": "2",
        "SLURM_JOB_ID": "7",
    }
    for number in range(10):
        restarts = {"SLURM_RESTART_COUNT": str(number)} if number else {}  # Slurm sets none at the first start
        subprocess.run(["bash", "train.sbatch"], cwd=folder, env={**environment, **restarts}, check=True)
        asked = folder / "requeued"
        if not asked.is_file() or len(asked.read_text().splitlines()) == number:
            return number + 1
    return 10


def test_a_run_that_saves_goes_on_until_its_end(tmp_path: Path) -> None:
    """Each try is cut off after a checkpoint; the seventh reaches the end of the run."""
    saves = "mkdir -p runs/mine/checkpoints/step-$SLURM_RESTART_COUNT"
    ends = '[ "${SLURM_RESTART_COUNT:-0}" -lt 6 ] || touch runs/mine/summary.json'
    assert tries(tmp_path, f"{saves}; {ends}") == 7


def test_a_mistake_ends_after_three_tries(tmp_path: Path) -> None:
    assert tries(tmp_path, "") == 3


def test_a_run_that_fails_at_the_same_step_each_time_ends(tmp_path: Path) -> None:
    assert tries(tmp_path, "mkdir -p runs/mine/checkpoints/step-3") == 3


def test_a_run_that_has_ended_is_not_started_again(tmp_path: Path) -> None:
    assert tries(tmp_path, "mkdir -p runs/mine; touch runs/mine/summary.json") == 1


def test_torchrun_leaves_a_run_the_time_that_the_queue_gives_it(tmp_path: Path) -> None:
    assert SCRIPT is not None
    tries(tmp_path, "")
    command, _, *arguments = (tmp_path / "started").read_text().splitlines()[0].partition(" ")
    assert command == "torchrun"
    options = get_args_parser().parse_args(" ".join(arguments).split())
    assert (options.nnodes, options.rdzv_endpoint, options.rdzv_id) == ("2", "one:20007", "7")
    found = re.search(r"--signal=TERM@(\d+)", SCRIPT.group(1))
    assert found is not None
    assert 30 < options.shutdown_timeout < int(found.group(1))
