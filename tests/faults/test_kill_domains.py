"""Every domain, killed while sampling, scoring, rewarding, drawing candidates, noising, updating, evaluating and on
both sides of a stage's end, ends bit-identically too: with its references, running scales, windows and memories.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.faults.domains import killed_and_resumed, untouched
from tests.images.diffusion.small import TABLE
from tests.images.diffusion.small_pairs import PAIRS
from tests.images.restoration.small import TABLE as SMALL_RESTORATION
from tests.selection.tiny import TABLE as SMALL_SELECTION

from groupwise.domain.language.domain import LanguageDomain
from groupwise_images.diffusion.domain import DiffusionDomain
from groupwise_images.restoration.domain import RestorationDomain
from groupwise_selection.domain import SelectionDomain

# Two updates a batch in two parts, so that the policy leaves the one that sampled.
TRAIN = {"prompts_per_step": 3, "group_size": 3, "updates_per_batch": 2, "minibatches": 2, "evaluate_every": 2}
TRAIN |= {"micro_batch_members": 4}
RUN = {"method": "grpo", "checkpoint": {"every": 2}, "track": {"console": "none", "rollouts_every": 1}}
SUPERVISED = {"policy_weight": 0.0, "auxiliary": {"supervised": 1.0}}
PERIODIC = {"kind": "periodic", "sync_steps": 2, "alpha": 0.5}

SHAPE = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "num_key_value_heads": 1, "intermediate_size": 32}
LANGUAGE = RUN | {
    "extends": "language",
    "controls": None,
    "domain": {
        "model": {"shape": SHAPE},
        "data": {"num_train": 32, "num_held_out": 8, "source": {"num_cups": 3, "num_swaps": 2}},
        "demonstrations": {"num": 64},
        # A model this fresh is never right: a reward that tells its answers apart, so that every step has something to
        # learn.
        "rewards": {"short": {"kind": "length", "target": 4}},
    },
    "train": TRAIN | {"prompts_per_step": 4, "group_size": 4, "micro_batch_members": 6},
    "stages": {"warm_up": {"num_steps": 3}, "grpo": {"num_steps": 5}},
}

# A reader that is fitted in every process that asks it.
DIGITS = {"kind": "classifier", "function": "groupwise_images.diffusion.digit_readers:support_vectors"}
WORDS = {"kind": "callable", "path": "groupwise_images.restoration.readers:support_vectors"}

# In the following every kind of state at once: a moving reference in the loss, a window that moves, a supervised term,
# averaged weights, prompts with a past by which they are drawn and scaled, groups that shrink.
DIFFUSION = RUN | {
    "method": "flow_grpo",
    "trust": {"kind": "clip", "low": 0.01, "high": 0.01},
    "advantage": {"kind": "per_prompt", "buffer_size": 4, "min_count": 2},
    "auxiliary": {"supervised": 0.1},
    "domain": {**TABLE, "window": {"size": 2, "place": "random"}, "rewards": {**TABLE["rewards"], "read": DIGITS}},
    "train": TRAIN
    | {"weight_average": {"decay": 0.5}, "adaptive_sampling": {"threshold": 0.5}}
    | {"dynamic_group_size": {"minimum": 2, "maximum": 6}},
    "stages": [
        {"name": "warm_up", "num_steps": 3, "set": SUPERVISED},
        {"name": "flow_grpo", "num_steps": 5, "set": {"reference": PERIODIC}},
    ],
}

IMAGE_PROMPTS = RUN | {
    "method": "flow_grpo",
    "domain": PAIRS,
    "auxiliary": {"supervised": 0.1},
    "train": TRAIN | {"minibatches": 1, "demonstrations_per_step": 4},
    "stages": [{"name": "supervised", "num_steps": 3, "set": SUPERVISED}, {"name": "grpo", "num_steps": 3}],
}

MATCHING = RUN | {
    "method": "diffusion_nft",
    "domain": TABLE,
    "matching": {"kind": "mirrored", "strength": 0.5, "times": {"num": 2, "levels": "uniform"}},
    "reference": {"kind": "ema", "decay": 0.9},
    "train": TRAIN | {"num_steps": 5},
}

# Running statistics, a moving reference in two terms, a supervised term.
RESTORATION = RUN | {
    "advantage": {"kind": "running_std"},
    "divergence": {"kind": "exact", "beta": 0.1},
    "auxiliary": {"supervised": 0.1, "consistency": 0.1},
    "domain": {**SMALL_RESTORATION, "rewards": {**SMALL_RESTORATION["rewards"], "read": WORDS}},
    "reference": PERIODIC,
    "train": TRAIN,
    "stages": [
        {
            "name": "supervised",
            "num_steps": 3,
            "set": {"policy_weight": 0.0, "auxiliary": {"supervised": 1.0, "consistency": 0.0}},
        },
        {"name": "progressive", "num_steps": 3},
        {"name": "full", "num_steps": 3, "set": {"train": {"group_size": 4}, "advantage": {"clip": 1.0}}},
    ],
}

# A reward on a running scale with weights that follow its parts, an adaptive beta, a moving reference in the exact
# divergence, candidates beside the policy term, numbers of examples drawn at random.
MODES = {"mode": {"kind": "hybrid"}, "per_shot": {"1": {"kind": "hybrid_v2"}}, "adapt": {"follow": "spread"}}
TAU = {"kind": "linear", "start": 2.0, "end": 0.5, "num_steps": 8}
SELECTION = RUN | {
    "divergence": {"kind": "exact", "beta": {"kind": "multiplicative", "initial": 0.1, "lower": 1e-4, "upper": 1e-3}},
    "reference": PERIODIC,
    "auxiliary": {"supervised": 0.1},
    "domain": {
        **SMALL_SELECTION,
        "shots": 3,
        "random_shots": True,
        "prefix": {},
        "rce": {"candidates": {"kind": "sampled", "num_candidates": 2}, "tau": TAU},
        "rewards": {"vqa": {"kind": "vqa", **MODES}},
    },
    "train": TRAIN | {"group_size": 4, "micro_batch_members": 5, "demonstrations_per_step": 4},
    "stages": [
        {"name": "rce", "num_steps": 3, "set": SUPERVISED},
        {"name": "grpo", "num_steps": 4},
        # Candidates are weighed with what the rewards learnt in the stage before.
        {"name": "rce_again", "num_steps": 2, "set": SUPERVISED},
        {"name": "grpo_again", "num_steps": 2, "set": {"domain": {"rewards": {"vqa": {"mode": {"alpha": 0.7}}}}}},
    ],
}


RUNS: dict[str, tuple[dict[str, Any], type, list[tuple[str, int]], list[tuple[str, int]]]] = {
    "language": (
        LANGUAGE,
        LanguageDomain,
        [("backward", 4), ("evaluate", 4)],
        [("sample", 3), ("reward", 4), ("score", 9)],
    ),
    "diffusion": (
        DIFFUSION,
        DiffusionDomain,
        [("with_reference", 2), ("backward", 4)],
        [("sample", 3), ("reward", 4), ("score", 9), ("evaluate", 4)],
    ),
    "image_prompts": (
        IMAGE_PROMPTS,
        DiffusionDomain,
        [("reward", 3)],
        [("demonstrations", 3), ("sample", 2), ("backward", 7), ("evaluate", 3)],
    ),
    "matching": (MATCHING, DiffusionDomain, [("noised", 4)], [("with_reference", 3), ("backward", 4), ("score", 9)]),
    "restoration": (
        RESTORATION,
        RestorationDomain,
        [("score", 9), ("evaluate", 4)],
        [("sample", 3), ("sample", 4), ("with_reference", 2), ("reward", 5)],
    ),
    "selection": (
        SELECTION,
        SelectionDomain,
        [("sample", 2), ("demonstrations", 20)],
        [
            ("with_reference", 3),
            ("reward", 4),
            ("score", 12),
            ("demonstrations", 2),
            ("evaluate", 3),
            ("evaluate", 5),
        ],
    ),
}
"""Experiment, domain, and the calls in which it is killed; CI does so to the first ones of language."""

KILLS = [
    pytest.param(name, *point, marks=pytest.mark.slow if name == "language" and point in first else pytest.mark.nightly)
    for name, (_, _, first, others) in RUNS.items()
    for point in first + others
]


@pytest.fixture(scope="module")
def alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The file of the experiment, and the state in which it ends where nothing kills it."""
    return untouched(RUNS[request.param][0], tmp_path_factory.mktemp("untouched"))


@pytest.mark.nightly
@pytest.mark.parametrize("alone", ["selection"], indirect=True)
def test_the_run_has_the_state_that_is_to_survive(alone: tuple[Path, dict[str, Any]]) -> None:
    checkpoint = max(
        (alone[0].parent / "run" / "checkpoints").glob("step-*"), key=lambda path: int(path.name.removeprefix("step-"))
    )
    text = (checkpoint / "values.json").read_text()
    assert '"scale"' in text
    assert '"weights"' in text
    assert '"1"' in json.dumps(json.loads(text))


@pytest.mark.parametrize(("alone", "point", "number"), KILLS, indirect=["alone"])
def test_killed_and_resumed(
    alone: tuple[Path, dict[str, Any]], request: pytest.FixtureRequest, tmp_path: Path, point: str, number: int
) -> None:
    domain = RUNS[request.node.callspec.params["alone"]][1]
    assert killed_and_resumed(alone[0], tmp_path, domain, point, number) == alone[1]
