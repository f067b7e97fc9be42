"""Every preset that trains language models ends, with weights in shards on four processes, where one process ends: the
scopes decision, member and batch, through the loss and through cotangents, with unequal shares and with none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.training.step_runs import Case, write_inputs
from tests.training.test_sharding import gaps, launch, newest, write

from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run
from groupwise.objective import Objective
from groupwise.objective.matching import NoMatching
from groupwise.objective.preset import method_names

BOUND = 1e-10
"""Of a weight, all of whose size is about one. Rounding in fp64 is 1e-16; such runs magnify it to 3e-14 at most."""

FIELDS = {"log_prob", "entropy", "score_norm"}
"""The fields that a language model supplies."""

PRESETS = [
    name
    for name in method_names()
    for objective in [Objective.preset(name)]
    if objective.requires <= FIELDS and isinstance(objective.matching, NoMatching)
]
COVERING = ("grpo", "gspo", "clip_cov")
"""One of each scope."""


def changes(sharding: str) -> dict[str, Any]:
    """Five prompts for four processes: one has two, and after the flat groups are left out some have none."""
    return {"train": {"sharding": sharding, "prompts_per_step": 5}}


def test_the_covering_presets_are_of_every_scope() -> None:
    assert [Objective.preset(name).scope for name in COVERING] == ["decision", "member", "batch"]
    assert len(PRESETS) > 30


@pytest.mark.nightly
def test_four_processes_with_shards_end_where_one_process_ends(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    for name in PRESETS:
        case = Case(name, minibatches=2)
        write(f"{name}-none", case, changes("none"), tmp_path)
        write(f"{name}-full", case, changes("full"), tmp_path)
    launch([f"{name}-full" for name in PRESETS], tmp_path, 4)
    worst = {}
    for name in PRESETS:
        run(load_experiment(tmp_path / f"{name}-none.json", run_code=True), tmp_path / f"{name}-none")
        one, shards = (newest(tmp_path / f"{name}-{sharding}")["learner"]["weights"] for sharding in ("none", "full"))
        worst[name] = max(gaps(shards, one).values())
    assert {name: gap for name, gap in worst.items() if not gap <= BOUND} == {}
