"""A group of processes that runs the tasks of `FOLDER/tasks.json`: `python -m tests.training.sharding_worker FOLDER`,
with WORLD_SIZE set. A task is the name of an experiment's file, or `resume NAME`, or a function of this file.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.training.forked import fork
from torch import nn

import groupwise.domain.language.domain  # noqa: F401  # before the fork, since each would import it
from groupwise.causal_lm import scoring
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import resume, run
from groupwise.learner import shards
from groupwise.learner.shards import inside, process_mesh, shard_module


def absent(folder: Path) -> None:
    """Lets process 1 miss a pass of a sharded module; writes what the others get instead."""
    mesh = process_mesh(torch.device("cpu"), timedelta(seconds=2))
    module = nn.Linear(4, 4)
    shard_module(module, [], mesh)
    if dist.get_rank() == 1:
        return
    try:
        inside(module, lambda: module.weight.sum()).backward()
    except Exception as error:
        (folder / "absent.txt").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")


def counting(function: Callable[..., Any], calls: list[int]) -> Callable[..., Any]:
    """The function, which adds an entry to a list at every call."""

    def counted(*arguments: Any, **settings: Any) -> Any:
        calls.append(len(calls))
        return function(*arguments, **settings)

    return counted


def noting_whole(score: Callable[..., Any], sizes: list[int]) -> Callable[..., Any]:
    """The function, which adds the number of members to a list where a whole model scores them."""

    def noted(backbone: Any, inputs: Any, **settings: Any) -> Any:
        if not backbone.sharded:
            sizes.append(len(inputs.prompts))
        return score(backbone, inputs, **settings)

    return noted


def main(folder: Path) -> None:
    """All tasks, one after the other, in a group each."""
    torch.set_num_threads(1)
    importlib.import_module("torch.distributed.nn")
    calls: list[int] = []
    shards.gathered = counting(shards.gathered, calls)
    scored_whole: list[int] = []
    scoring.score = noting_whole(scoring.score, scored_whole)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for number, task in enumerate(json.loads((folder / "tasks.json").read_text(encoding="utf-8"))):
        if size > 1:
            store = folder / f"{size}-{number}-{task.replace(' ', '-')}.store"
            dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
        if task == "absent":
            absent(folder)
        elif task.startswith("resume "):
            resume(folder / task.removeprefix("resume "), run_code=True)
        else:
            run(load_experiment(folder / f"{task}.json", run_code=True), folder / task)
        (folder / f"gathered-{rank}-{task.replace(' ', '-')}").write_text(str(len(calls)), encoding="utf-8")
        (folder / f"scored-whole-{rank}-{task.replace(' ', '-')}.json").write_text(json.dumps(scored_whole))
        calls.clear()
        scored_whole.clear()
        if size > 1:
            dist.destroy_process_group()


if __name__ == "__main__":
    fork()
    main(Path(sys.argv[1]))
