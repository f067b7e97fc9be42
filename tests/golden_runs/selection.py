"""The golden run of selection: a narrow pointer network, digit-rule questions, an untrained task model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from groupwise_selection.policy.config import Pointer
from groupwise_selection.policy.network import PointerNetwork, save

EMBEDDING_SIZE = 38
"""Six components of an image, sixteen numbers of a question's code, sixteen that mean nothing."""


def coarse(expected: Sequence[float], **columns: Any) -> list[float]:
    """The expected accuracy in hundredths."""
    return [round(value, 2) for value in expected]


def sure(probability: Sequence[float], **columns: Any) -> list[float]:
    """The probability of the answer in hundredths; a second reward, for methods that treat rewards apart."""
    return [round(value, 2) for value in probability]


def policy(folder: Path) -> str:
    """A policy that looks at more than similarity. A fresh one does not, and its first steps change all that is to
    come.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(7)
        network = PointerNetwork(EMBEDDING_SIZE, Pointer(width=24, num_heads=2, scale=5.0, dtype="float64"), stop=True)
        for weight in network.parameters():
            if not weight.any():
                weight.uniform_(-0.3, 0.3)
    save(network, folder)
    return str(folder)


def table(folder: Path) -> dict[str, Any]:
    """The experiment; the runner adds the method."""
    return {
        "domain": {
            "kind": "selection",
            "model": {"kind": "pretrained", "path": policy(folder / "policy")},
            # Every number of the questions is stated: what the default is must not move the recorded course.
            "source": {
                **{
                    "kind": "digit_rules",
                    "dimensions": 6,
                    "num_rules": 26,
                    "num_train": 8,
                    "num_validation": 2,
                    "num_held_out": 2,
                },
                **{
                    "pool_size": 6,
                    "bank_size": 8,
                    "image_weight": 0.25,
                    "question_weight": 0.3,
                    "nuisance_weight": 0.45,
                    "question_noise": 0.7,
                },
            },
            "task_model": {
                "kind": "digit_rules",
                "dimensions": 6,
                "width": 8,
                "num_layers": 1,
                "num_heads": 2,
                "num_steps": 0,
                "cache": False,
            },
            "shots": 3,
            "stop": True,
            "rewards": {
                "coarse": {"kind": "callable", "path": "tests.golden_runs.selection:coarse"},
                "sure": {"kind": "callable", "path": "tests.golden_runs.selection:sure", "weight": 0.5},
            },
            "evaluation": {"validation": False, "tables": False},
        },
        "train": {"prompts_per_step": 2, "group_size": 4},
        "optimiser": {"learning_rate": 0.06, "eps": 0.1},
    }
