"""The selection domain, killed while sampling, rewarding, drawing candidates, updating and evaluating, ends
bit-identically too: with its rewards' memory.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.faults.domains import killed_and_resumed, slow_and_nightly
from tests.selection.tiny import TABLE

from groupwise_selection.domain import SelectionDomain

TINY = {
    "method": "grpo",
    # A reward on a running scale with weights that follow its parts, an adaptive beta, a moving reference in the exact
    # divergence, candidates beside the policy term, numbers of examples drawn at random: every kind of state at once.
    "divergence": {"kind": "exact", "beta": {"kind": "multiplicative", "initial": 0.1, "lower": 1e-4, "upper": 1e-3}},
    "reference": {"kind": "periodic", "sync_steps": 2, "alpha": 0.5},
    "auxiliary": {"supervised": 0.1},
    "domain": {
        **TABLE,
        "shots": 3,
        "random_shots": True,
        "prefix": {},
        "rce": {
            "candidates": {"kind": "sampled", "num_candidates": 2},
            "tau": {"kind": "linear", "start": 2.0, "end": 0.5, "num_steps": 8},
        },
        "rewards": {
            "vqa": {
                "kind": "vqa",
                "mode": {"kind": "hybrid"},
                "per_shot": {"1": {"kind": "hybrid_v2"}},
                "adapt": {"follow": "spread"},
            }
        },
    },
    "train": {
        "prompts_per_step": 3,
        "group_size": 4,
        "updates_per_batch": 2,
        "minibatches": 2,
        "micro_batch_members": 5,
        "evaluate_every": 2,
        "demonstrations_per_step": 4,
    },
    "stages": [
        {"name": "rce", "num_steps": 3, "set": {"policy_weight": 0.0, "auxiliary": {"supervised": 1.0}}},
        {"name": "grpo", "num_steps": 4},
        # Candidates are weighed with what the rewards learnt in the stage before.
        {"name": "rce_again", "num_steps": 2, "set": {"policy_weight": 0.0, "auxiliary": {"supervised": 1.0}}},
        {"name": "grpo_again", "num_steps": 2, "set": {"domain": {"rewards": {"vqa": {"mode": {"alpha": 0.7}}}}}},
    ],
    "checkpoint": {"every": 2},
    "track": {"console": "none", "rollouts_every": 1},
}


@pytest.mark.slow
def test_the_run_has_the_state_that_is_to_survive(alone: tuple[Path, dict[str, Any]]) -> None:
    checkpoint = max(
        (alone[0].parent / "run" / "checkpoints").glob("step-*"), key=lambda path: int(path.name.removeprefix("step-"))
    )
    text = (checkpoint / "values.json").read_text()
    assert '"scale"' in text
    assert '"weights"' in text
    assert '"1"' in json.dumps(json.loads(text))


POINTS = [("sample", 2), ("demonstrations", 20)]
MORE_POINTS = [
    ("with_reference", 3),
    ("reward", 4),
    ("score", 12),
    ("demonstrations", 2),
    ("evaluate", 3),
    ("evaluate", 5),
]


@pytest.mark.parametrize(("point", "number"), slow_and_nightly(POINTS, MORE_POINTS))
def test_killed_and_resumed(alone: tuple[Path, dict[str, Any]], tmp_path: Path, point: str, number: int) -> None:
    assert killed_and_resumed(alone[0], tmp_path, SelectionDomain, point, number) == alone[1]
