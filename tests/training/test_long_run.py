"""The memory of a run does not grow with its steps: Python's objects are counted twice, some hundred steps apart."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.images.diffusion import small as diffusion
from tests.images.restoration import small as restoration
from tests.selection import tiny as selection

from groupwise import load_experiment
from groupwise.experiment.runner import run as run_experiment

FIRST, LAST = 300, 500
"""Steps: by the first, the windows that are kept are full; by the last, what grows shows."""
OBJECTS_A_STEP = 3.0
"""One number of each metric is some fifty."""
COUNTS: dict[int, int] = {}


def num_objects() -> int:
    """Objects of this process: containers, and what they hold, such as the numbers in a list."""
    gc.collect()
    counted_ids: set[int] = set()
    for candidate in gc.get_objects():
        counted_ids.add(id(candidate))
        if candidate is not counted_ids:
            counted_ids.update(map(id, gc.get_referents(candidate)))
    return len(counted_ids)


def note(step: int, metrics: Mapping[str, float]) -> None:
    if step in (FIRST, LAST):
        COUNTS[step] = num_objects()


def growth() -> float:
    return (COUNTS[LAST] - COUNTS[FIRST]) / (LAST - FIRST)


LANGUAGE = {
    "kind": "language",
    "model": {
        "kind": "scratch",
        "tokenizer": "words",
        "shape": {
            "hidden_size": 8,
            "num_layers": 1,
            "num_heads": 2,
            "num_key_value_heads": 1,
            "intermediate_size": 16,
            "max_positions": 32,
        },
    },
    "data": {"num_train": 16, "num_held_out": 4, "source": {"kind": "sorting", "min_length": 2, "max_length": 3}},
    "sampling": {"max_new_tokens": 3},
    "rewards": {
        "correct": {"kind": "exact_answer"},
        "short": {"kind": "soft_overlong", "max_length": 3, "cache_length": 2},
    },
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "domain", [LANGUAGE, diffusion.TABLE, restoration.TABLE, selection.TABLE], ids=lambda domain: domain["kind"]
)
def test_a_run_of_a_real_domain_holds_as_much(
    domain: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "cache"))
    table = {
        "name": "long",
        "domain": domain,
        "train": {
            "num_steps": LAST,
            "prompts_per_step": 2,
            "group_size": 2,
            "evaluate_every": 20,
            "callbacks": [f"{__name__}:note"],
        },
        "track": {"console": "none", "keep_records": 4},
    }
    (tmp_path / "long.json").write_text(json.dumps(table))
    run_experiment(load_experiment(tmp_path / "long.json", run_code=True), tmp_path / "run")
    assert growth() < OBJECTS_A_STEP
