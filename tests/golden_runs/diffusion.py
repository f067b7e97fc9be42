"""The golden run of diffusion: a one-layer transformer with fresh weights, three transitions an image, rewards that
random images earn in part.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def bright(completions: Sequence[Any], **columns: Any) -> list[float]:
    """The mean of an image's pixels."""
    return [float(image.double().mean()) / 255 for image in completions]


def left(completions: Sequence[Any], **columns: Any) -> list[float]:
    """One where the left half is the brighter; a second reward, for methods that treat rewards apart."""
    return [float(image[:, :4].double().sum() > image[:, 4:].double().sum()) for image in completions]


def table(folder: Path) -> dict[str, Any]:
    """The experiment; the runner adds the method."""
    shape = {
        "sample_size": 8,
        "patch_size": 4,
        "in_channels": 1,
        "out_channels": 1,
        "num_layers": 1,
        "num_attention_heads": 2,
        "attention_head_dim": 4,
    }
    return {
        "domain": {
            "kind": "diffusion",
            "model": {"kind": "scratch", "dtype": "float64", "shape": {**shape, "num_embeds_ada_norm": 10}},
            "data": {"source": {"kind": "digits"}},
            "rewards": {
                "bright": {"kind": "callable", "path": "tests.golden_runs.diffusion:bright"},
                "left": {"kind": "callable", "path": "tests.golden_runs.diffusion:left", "weight": 0.5},
            },
            "sampler": {"kind": "flow_sde", "noise": 0.7},
            "reduce": "sum",
            "num_steps": 4,
            "evaluation": {"num_prompts": 1, "num_images": 2, "num_columns": 0},
        },
        "train": {"prompts_per_step": 2, "group_size": 4},
        "optimiser": {"learning_rate": 0.15, "eps": 1.0},
    }
