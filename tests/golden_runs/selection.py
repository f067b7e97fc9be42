"""The golden run of selection: a narrow pointer network with fresh weights, digit-rule questions, an untrained task model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def coarse(expected: Sequence[float], **columns: Any) -> list[float]:
    """The expected accuracy in hundredths: the task model answers in fp32, whose last digits differ between machines."""
    return [round(value, 2) for value in expected]


def sure(probability: Sequence[float], **columns: Any) -> list[float]:
    """The probability of the answer in hundredths; a second reward, for methods that treat rewards apart."""
    return [round(value, 2) for value in probability]


def table(folder: Path) -> dict[str, Any]:
    """The experiment; the runner adds the method."""
    return {
        "domain": {
            "kind": "selection",
            "model": {"kind": "pointer", "width": 8, "num_heads": 2, "scale": 5.0, "dtype": "float64"},
            # Every number of the questions is stated: what the default is must not move the recorded course.
            "source": {
                **{"kind": "digit_rules", "dimensions": 6, "num_rules": 26, "num_train": 8, "num_validation": 2, "num_held_out": 2},
                **{"pool_size": 6, "bank_size": 8, "image_weight": 0.25, "question_weight": 0.3, "nuisance_weight": 0.45, "question_noise": 0.7},
            },
            "task_model": {"kind": "digit_rules", "dimensions": 6, "width": 8, "num_layers": 1, "num_heads": 2, "num_steps": 0, "cache": False},
            "shots": 3,
            "stop": True,
            "rewards": {
                "coarse": {"kind": "callable", "path": "tests.golden_runs.selection:coarse"},
                "sure": {"kind": "callable", "path": "tests.golden_runs.selection:sure", "weight": 0.5},
            },
            "evaluation": {"validation": False, "tables": False},
        },
        "train": {"prompts_per_step": 2, "group_size": 4},
        "optimiser": {"learning_rate": 0.15, "eps": 0.01},
    }
