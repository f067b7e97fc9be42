"""The diffusion domain with images as prompts, killed while sampling, rewarding, updating and evaluating, ends
bit-identically too: every degradation is drawn again as it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.faults.domains import killed_and_resumed, slow_and_nightly
from tests.images.diffusion.small_pairs import PAIRS

from groupwise_images.diffusion.domain import DiffusionDomain

TINY = {
    "method": "flow_grpo",
    "domain": PAIRS,
    "auxiliary": {"supervised": 0.1},
    "train": {
        "prompts_per_step": 3,
        "group_size": 3,
        "updates_per_batch": 2,
        "micro_batch_members": 4,
        "evaluate_every": 2,
        "demonstrations_per_step": 4,
    },
    "stages": [
        {"name": "supervised", "num_steps": 3, "set": {"policy_weight": 0.0, "auxiliary": {"supervised": 1.0}}},
        {"name": "grpo", "num_steps": 3},
    ],
    "checkpoint": {"every": 2},
    "track": {"console": "none", "rollouts_every": 1},
}


POINTS, MORE_POINTS = [("reward", 3)], [("demonstrations", 3), ("sample", 2), ("backward", 7), ("evaluate", 3)]


@pytest.mark.parametrize(("point", "number"), slow_and_nightly(POINTS, MORE_POINTS))
def test_killed_and_resumed(alone: tuple[Path, dict[str, Any]], tmp_path: Path, point: str, number: int) -> None:
    assert killed_and_resumed(alone[0], tmp_path, DiffusionDomain, point, number) == alone[1]
