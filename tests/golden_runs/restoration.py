"""The golden run of restoration: a few convolutions with fresh weights, noisy digits, blocks of four by four pixels,
two rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def near(completions: Sequence[Any], clean: Sequence[Any], **columns: Any) -> list[float]:
    """One minus the mean distance to the target."""
    return [
        1 - float((image.double() - target.double()).abs().mean()) / 255
        for image, target in zip(completions, clean, strict=True)
    ]


def bright(completions: Sequence[Any], **columns: Any) -> list[float]:
    """The mean of an image's pixels; a second reward, for methods that treat rewards apart."""
    return [float(image.double().mean()) / 255 for image in completions]


def table(folder: Path) -> dict[str, Any]:
    """The experiment; the runner adds the method."""
    return {
        "domain": {
            "kind": "restoration",
            "model": {"kind": "network", "dtype": "float64", "network": {"kind": "residual", "width": 2, "depth": 0}},
            "source": {"kind": "digits", "num_train": 8},
            "degradation": {"kind": "gaussian_noise", "sigma": 0.3},
            "policy": {"kind": "pixels", "sigma": 0.2, "block": 4},
            "rewards": {
                "near": {"kind": "callable", "path": "tests.golden_runs.restoration:near"},
                "bright": {"kind": "callable", "path": "tests.golden_runs.restoration:bright", "weight": 0.5},
            },
            "evaluation": {"num_images": 1, "num_columns": 0},
        },
        "train": {"prompts_per_step": 2, "group_size": 4},
        "optimiser": {"learning_rate": 0.1, "eps": 1.0},
    }
