"""A pair of processes that runs the cases of `FOLDER/cases.json`: `python -m tests.training.step_worker FOLDER
[broken]`, with WORLD_SIZE set.

The processes find each other by a file for each run, so that no port has to be free. `broken` makes each divide by what
it holds itself.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from tests.training.forked import fork
from tests.training.step_runs import Case, train

import groupwise.domain.language.domain  # noqa: F401  # before the fork, since each would import it
from groupwise.objective import Objective


def main(folder: Path, *, broken: bool) -> None:
    """All cases, one after the other, in a group each."""
    torch.set_num_threads(1)
    # As `groupwise.training.distributed.connect` does before there is a group: it would be kept beyond its end.
    importlib.import_module("torch.distributed.nn")
    if broken:
        plain = Objective.plan
        Objective.plan = lambda self, update, state, reduce, **more: plain(self, update, state, **more)  # type: ignore[method-assign]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for fields in json.loads((folder / "cases.json").read_text(encoding="utf-8")):
        case = Case(**fields)
        dist.init_process_group("gloo", init_method=f"file://{folder / case.name}.store", rank=rank, world_size=size)
        train(case, folder)
        dist.destroy_process_group()


if __name__ == "__main__":
    fork()
    main(Path(sys.argv[1]), broken="broken" in sys.argv[2:])
