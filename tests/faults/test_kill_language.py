"""The language domain, killed while sampling, scoring, rewarding, updating and saving, ends bit-identically too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.faults.domains import killed_and_resumed, slow_and_nightly

from groupwise.domain.language.domain import LanguageDomain

TINY = {
    "extends": "language",
    "controls": None,
    "method": "grpo",
    "domain": {
        "model": {
            "shape": {
                "hidden_size": 16,
                "num_layers": 1,
                "num_heads": 2,
                "num_key_value_heads": 1,
                "intermediate_size": 32,
            }
        },
        "data": {"num_train": 32, "num_held_out": 8, "source": {"num_cups": 3, "num_swaps": 2}},
        "demonstrations": {"num": 64},
        # A model this fresh is never right: a reward that tells its answers apart, so that every step has something to
        # learn.
        "rewards": {"short": {"kind": "length", "target": 4}},
    },
    "train": {
        "prompts_per_step": 4,
        "group_size": 4,
        "updates_per_batch": 2,
        "minibatches": 2,
        "micro_batch_members": 6,
        "evaluate_every": 2,
    },
    "stages": {"warm_up": {"num_steps": 3}, "grpo": {"num_steps": 5}},
    "checkpoint": {"every": 2},
    "track": {"console": "none", "rollouts_every": 1},
}


POINTS, MORE_POINTS = [("backward", 4), ("evaluate", 4)], [("sample", 3), ("reward", 4), ("score", 9)]


@pytest.mark.parametrize(("point", "number"), slow_and_nightly(POINTS, MORE_POINTS))
def test_killed_and_resumed(alone: tuple[Path, dict[str, Any]], tmp_path: Path, point: str, number: int) -> None:
    assert killed_and_resumed(alone[0], tmp_path, LanguageDomain, point, number) == alone[1]
