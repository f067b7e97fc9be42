"""The diffusion domain, killed while sampling, scoring, rewarding, updating and evaluating, ends
bit-identically too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.faults.domains import killed_and_resumed, slow_and_nightly
from tests.images.diffusion.small import TABLE

from groupwise_images.diffusion.domain import DiffusionDomain

READER = {"kind": "classifier", "function": "groupwise_images.diffusion.digit_readers:support_vectors"}
TINY = {
    "method": "flow_grpo",
    # Two updates a batch, a moving reference in the loss, a window that moves, a supervised term, averaged weights,
    # prompts with a past by which they are drawn and scaled, groups that shrink: every kind of state at once.
    "trust": {"kind": "clip", "low": 0.01, "high": 0.01},
    "advantage": {"kind": "per_prompt", "buffer_size": 4, "min_count": 2},
    "auxiliary": {"supervised": 0.1},
    # One reward is a reader that is fitted in every process that asks it.
    "domain": {**TABLE, "window": {"size": 2, "place": "random"}, "rewards": {**TABLE["rewards"], "read": READER}},
    "train": (
        {
            "prompts_per_step": 3,
            "group_size": 3,
            "updates_per_batch": 2,
            "minibatches": 2,
            "micro_batch_members": 4,
            "evaluate_every": 2,
        }
        | {
            "weight_average": {"decay": 0.5},
            "adaptive_sampling": {"threshold": 0.5},
            "dynamic_group_size": {"minimum": 2, "maximum": 6},
        }
    ),
    "stages": [
        {"name": "warm_up", "num_steps": 3, "set": {"policy_weight": 0.0, "auxiliary": {"supervised": 1.0}}},
        {
            "name": "flow_grpo",
            "num_steps": 5,
            "set": {"reference": {"kind": "periodic", "sync_steps": 2, "alpha": 0.5}},
        },
    ],
    "checkpoint": {"every": 2},
    "track": {"console": "none", "rollouts_every": 1},
}


POINTS = [("with_reference", 2), ("backward", 4)]
MORE_POINTS = [("sample", 3), ("reward", 4), ("score", 9), ("evaluate", 4)]


@pytest.mark.parametrize(("point", "number"), slow_and_nightly(POINTS, MORE_POINTS))
def test_killed_and_resumed(alone: tuple[Path, dict[str, Any]], tmp_path: Path, point: str, number: int) -> None:
    assert killed_and_resumed(alone[0], tmp_path, DiffusionDomain, point, number) == alone[1]
