"""Methods that learn from noised copies, killed while noising, updating and evaluating, end bit-identically too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.faults.domains import killed_and_resumed, slow_and_nightly
from tests.images.diffusion.small import TABLE

from groupwise_images.diffusion.domain import DiffusionDomain

TINY = {
    "method": "diffusion_nft",
    # Two updates a batch in two parts, so that the policy leaves the one that sampled; a reference that follows.
    "domain": TABLE,
    "matching": {"kind": "mirrored", "strength": 0.5, "times": {"num": 2, "levels": "uniform"}},
    "reference": {"kind": "ema", "decay": 0.9},
    "train": {
        "num_steps": 5,
        "prompts_per_step": 3,
        "group_size": 3,
        "updates_per_batch": 2,
        "minibatches": 2,
        "micro_batch_members": 4,
        "evaluate_every": 2,
    },
    "checkpoint": {"every": 2},
    "track": {"console": "none", "rollouts_every": 1},
}


POINTS, MORE_POINTS = [("noised", 4)], [("with_reference", 3), ("backward", 4), ("score", 9)]


@pytest.mark.parametrize(("point", "number"), slow_and_nightly(POINTS, MORE_POINTS))
def test_killed_and_resumed(alone: tuple[Path, dict[str, Any]], tmp_path: Path, point: str, number: int) -> None:
    assert killed_and_resumed(alone[0], tmp_path, DiffusionDomain, point, number) == alone[1]
