"""The core without what only Linux has: /proc, control groups, prctl, `sched_getaffinity`, the start method fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.page_commands import own_task

# Python imports it in every process that is begun.
TAKEN_AWAY = """
import builtins, ctypes, io, multiprocessing, os

def without(call):
    def called(path, *arguments, **keywords):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(("/proc", "/sys/fs/cgroup")):
            raise FileNotFoundError(2, "taken away", os.fspath(path))
        return call(path, *arguments, **keywords)
    return called

builtins.open = io.open = without(io.open)
for name in ("open", "listdir", "scandir", "stat"):
    setattr(os, name, without(getattr(os, name)))
del os.sched_getaffinity
find = ctypes.CDLL.__getattr__

def function(self, name):
    if name == "prctl":
        raise AttributeError(name)
    return find(self, name)

ctypes.CDLL.__getattr__ = function
multiprocessing.set_start_method("spawn")
multiprocessing.get_all_start_methods = lambda: ["spawn"]
"""

TASK = """
import ctypes, os
import groupwise
from groupwise.processor import num_processors
from groupwise.testing import check_reward
from my_rewards import correct

if __name__ == "__main__":
    assert not os.path.exists("/proc/self") and not hasattr(ctypes.CDLL(None), "prctl")
    assert num_processors() == os.cpu_count()
    check_reward(correct, ["4", "5"], columns={"answer": ["4", "4"]})
    small = {"train.num_steps": 2, "train.group_size": 2, "domain.sampling.max_new_tokens": 3}
    rewards = {"correct": "my_rewards:correct"}
    apart = {"domain.rewards.correct.isolation": "process"}
    run = groupwise.train("models/small", rewards=rewards, data="prompts.jsonl", out="run", **small, **apart)
    print(run.report().name, len(run.metrics), repr(run.doctor()))
"""


@pytest.mark.slow
def test_a_run_with_a_reward_in_a_process_needs_nothing_that_only_linux_has(tmp_path: Path) -> None:
    own_task(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "sitecustomize.py").write_text(TAKEN_AWAY, encoding="utf-8")
    (tmp_path / "task.py").write_text(TASK, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path / "taken"), str(tmp_path)])
    ended = subprocess.run(
        [sys.executable, "task.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr
    assert "report.html 3 " in ended.stdout
