"""The restoration domain, killed while sampling, rewarding, updating and evaluating, and on both sides of a stage's
end, ends bit-identically too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.faults.domains import killed_and_resumed, slow_and_nightly
from tests.images.restoration.small import TABLE

from groupwise_images.restoration.domain import RestorationDomain

TINY = {
    "method": "grpo",
    # Running statistics, a moving reference in two terms, two updates a batch, a supervised term: every kind of state
    # at once.
    "advantage": {"kind": "running_std"},
    "divergence": {"kind": "exact", "beta": 0.1},
    "auxiliary": {"supervised": 0.1, "consistency": 0.1},
    # One reward is a reader that is fitted in every process that asks it.
    "domain": {
        **TABLE,
        "rewards": {
            **TABLE["rewards"],
            "read": {"kind": "callable", "path": "groupwise_images.restoration.readers:support_vectors"},
        },
    },
    "reference": {"kind": "periodic", "sync_steps": 2, "alpha": 0.5},
    "train": {
        "prompts_per_step": 3,
        "group_size": 3,
        "updates_per_batch": 2,
        "minibatches": 2,
        "micro_batch_members": 4,
        "evaluate_every": 2,
    },
    "stages": [
        {
            "name": "supervised",
            "num_steps": 3,
            "set": {"policy_weight": 0.0, "auxiliary": {"supervised": 1.0, "consistency": 0.0}},
        },
        {"name": "progressive", "num_steps": 3},
        {"name": "full", "num_steps": 3, "set": {"train": {"group_size": 4}, "advantage": {"clip": 1.0}}},
    ],
    "checkpoint": {"every": 2},
    "track": {"console": "none", "rollouts_every": 1},
}


POINTS = [("score", 9), ("evaluate", 4)]
MORE_POINTS = [("sample", 3), ("sample", 4), ("with_reference", 2), ("reward", 5)]


@pytest.mark.parametrize(("point", "number"), slow_and_nightly(POINTS, MORE_POINTS))
def test_killed_and_resumed(alone: tuple[Path, dict[str, Any]], tmp_path: Path, point: str, number: int) -> None:
    assert killed_and_resumed(alone[0], tmp_path, RestorationDomain, point, number) == alone[1]
